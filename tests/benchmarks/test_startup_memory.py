import sys
from dataclasses import replace

import pytest

from benchmarks import startup_memory as module
from benchmarks.context import SERVE
from benchmarks.errors import BenchmarkError
from benchmarks.result import at_most
from benchmarks.server import GRAPHS, running_server
from benchmarks.startup_memory import (
    AT_START,
    EMPTY,
    EXPORTING,
    FIRST_ZOO,
    NEXT_ZOO,
    QUICK,
    UPLOADED,
    Growth,
    Kind,
    Memory,
    at_rest,
    compare_memory,
    compare_starts,
    measure,
    memory_figures,
    upload,
)
from capsules.backbones.load import load

FAKE = (sys.executable, "-m", "tests.support.fake_server")


@pytest.fixture
def fake(context, monkeypatch):
    """A context whose server starts, and comes to rest, at once."""
    monkeypatch.setattr(module, "SETTLE_POLL_S", 0.005)
    return replace(context, serve=FAKE)


def check(findings):
    (name,) = (kind.name for kind in QUICK.kinds)
    assert {(one.case, one.side) for one in findings.series} == {
        *((EMPTY, side) for side in ("listening", "ready", "processor time until then")),
        *(
            (f"{name}, {kind}", side)
            for kind in ("RSS", "USS")
            for side in ("one capsule", f"many, {AT_START}", f"many, {UPLOADED}")
        ),
        (f"{name}, files", "bytes of the files added"),
    }
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [
        f"ready, {EMPTY}",
        *(f"{name}, {way}: memory added / bytes of the files, RSS" for way in (AT_START, UPLOADED)),
    ]


@pytest.mark.timeout(120)
def test_starts_and_memory_are_measured(fake):
    check(measure(fake))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_starts_and_memory_of_a_real_server_are_measured(context):
    assert context.serve == SERVE
    check(measure(context))


def test_shipped_capsules_are_loaded_on_a_first_and_on_a_next_start(fake, monkeypatch):
    monkeypatch.setattr(module, "has_zoo", lambda _: True)
    folders, graphs = [], []

    def watched(context, data, settings):
        folders.append((data.name, settings["LOAD_ZOO"]))
        graphs.append(settings["GRAPH_DIR"])
        return running_server(context, data, settings)

    monkeypatch.setattr(module, "running_server", watched)
    starts = compare_starts(replace(fake, executor="auto"), 2)
    assert {name: len(every) for name, every in starts.items()} == {
        EMPTY: 2,
        FIRST_ZOO: 2,
        NEXT_ZOO: 2,
        EXPORTING: 2,
    }
    names = [name for name, _ in folders]
    assert names.count("zoo") == 1 + 1 + 2
    fresh = [name for name in names if name != "zoo"]
    assert len(set(fresh)) == len(fresh) == 3 * (1 + 2)
    assert {load for name, load in folders if name.startswith("empty")} == {"False"}
    assert {load for name, load in folders if not name.startswith("empty")} == {"True"}
    # Each of those that export finds none there; all others share theirs.
    others = {one for one, name in zip(graphs, names, strict=True) if "exporting" not in name}
    assert others == {str(GRAPHS)}
    assert len(set(graphs) - others) == 2 + 1
    with monkeypatch.context() as patch:
        patch.setattr(module, "interleave", lambda sides, rounds: list(sides))
        assert EXPORTING not in compare_starts(replace(fake, executor="torch"), 1)


def test_memory_is_set_against_the_bytes_of_the_files():
    kind = Kind("kind", (2,), 11, uploads=True, goal=at_most(1.2))
    growth = Growth(
        one=Memory(rss=100 * 1024, uss=50 * 1024),
        many={
            AT_START: Memory(rss=211 * 1024, uss=150 * 1024),
            UPLOADED: Memory(rss=250 * 1024, uss=180 * 1024),
        },
        added_bytes=100 * 1024,
    )
    assert [(one.value, one.met) for one in memory_figures({kind: [growth]})] == [
        (1.11, True),
        (1.0, None),
        (1.1, None),
        (1.5, False),
        (1.3, None),
        (5.0, None),
    ]


def test_kind_that_is_not_uploaded_has_one_way_in(fake):
    kind = Kind("kind", (2,), 3, uploads=False, goal=None)
    (growth,) = compare_memory(fake, load(fake.backbone, device="cpu").info, kind, QUICK)
    assert list(growth.many) == [AT_START]
    assert growth.added_bytes > 0


def test_memory_that_does_not_settle_is_no_result(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SETTLE_TIMEOUT_S", 0.0)
    with (
        running_server(fake, tmp_path, {}) as server,
        pytest.raises(BenchmarkError, match="still changed"),
    ):
        at_rest(server, 1)


def test_refused_upload_is_no_result(fake, tmp_path):
    with (
        running_server(fake, tmp_path, {}) as server,
        pytest.raises(BenchmarkError, match="upload got 422"),
    ):
        upload(server, iter([b"good", b""]))
