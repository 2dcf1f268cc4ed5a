import os
from contextlib import suppress
from pathlib import Path

import pytest

from capsules.executors.onnx.cache import GraphCache
from capsules.executors.onnx.graph import GRAPH, QUANTIZED


@pytest.fixture
def cache(tmp_path: Path) -> GraphCache:
    return GraphCache(tmp_path / "graphs")


def make(cache: GraphCache, fingerprint: str, content: str, *, quantized: bool = False) -> None:
    with cache.making(fingerprint, quantized=quantized) as folder:
        (folder / (QUANTIZED if quantized else GRAPH)).write_text(content)


def kept(cache: GraphCache, fingerprint: str, *, quantized: bool = False) -> str | None:
    path = cache.find(fingerprint, quantized=quantized)
    return None if path is None else path.read_text()


def test_what_was_made_is_found_again(cache: GraphCache) -> None:
    assert kept(cache, "one") is None
    make(cache, "one", "first")
    assert kept(GraphCache(cache.folder), "one") == "first"


def test_backbones_and_number_formats_have_graphs_of_their_own(cache: GraphCache) -> None:
    make(cache, "one", "first")
    make(cache, "one", "rounded", quantized=True)
    make(cache, "other", "second")
    assert kept(cache, "one") == "first"
    assert kept(cache, "one", quantized=True) == "rounded"
    assert kept(cache, "other") == "second"


def test_a_graph_appears_whole_or_not_at_all(cache: GraphCache) -> None:
    with suppress(KeyError), cache.making("one", quantized=False) as folder:
        (folder / GRAPH).write_text("half")
        assert cache.find("one", quantized=False) is None
        raise KeyError
    assert list(cache.folder.iterdir()) == []


def test_the_first_of_two_makers_wins(cache: GraphCache) -> None:
    with cache.making("one", quantized=False) as folder:
        (folder / GRAPH).write_text("late")
        make(cache, "one", "early")
    assert kept(cache, "one") == "early"
    assert len(list(cache.folder.iterdir())) == 1


def test_a_bad_graph_can_be_discarded(cache: GraphCache) -> None:
    make(cache, "one", "bad")
    cache.discard("one", quantized=False)
    assert kept(cache, "one") is None
    make(cache, "one", "good")
    assert kept(cache, "one") == "good"


def test_a_graph_that_was_refused_is_gone_and_the_reason_is_kept(cache: GraphCache) -> None:
    make(cache, "one", "wrong")
    assert cache.refusal("one", quantized=False) is None
    cache.refuse("one", "it is 3 · 10⁻³ off", quantized=False)
    assert kept(cache, "one") is None
    again = GraphCache(cache.folder)
    assert again.refusal("one", quantized=False) == "it is 3 · 10⁻³ off"
    assert again.refusal("one", quantized=True) is again.refusal("other", quantized=False) is None
    again.refusal_file("one", quantized=False).unlink()
    assert again.refusal("one", quantized=False) is None


def test_what_killed_makers_left_can_be_removed(cache: GraphCache) -> None:
    make(cache, "one", "first")
    with (
        cache.making("one", quantized=True) as rounded,
        cache.making("one", quantized=False) as again,
    ):
        cache.sweep("one", quantized=False)
        assert (again.exists(), rounded.exists()) == (False, True)
        again.mkdir()
    assert kept(cache, "one") == "first"


def test_a_folder_that_is_not_there_has_nothing_to_remove(cache: GraphCache) -> None:
    cache.sweep("one", quantized=False)
    cache.discard("one", quantized=False)
    assert not cache.folder.exists()


def test_the_lock_of_a_graph_is_its_own(cache: GraphCache) -> None:
    locks = {
        cache.lock_file(name, quantized=quantized)
        for name in ("one", "other")
        for quantized in (False, True)
    }
    assert len(locks) == 4
    assert {lock.parent for lock in locks} == {cache.folder}


@pytest.mark.parametrize("left", [b"", b"\xff\xfe"])
def test_a_reason_that_cannot_be_read_is_none(cache: GraphCache, left: bytes) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    cache.refusal_file("one", quantized=False).write_bytes(left)
    assert cache.refusal("one", quantized=False) is None


def test_a_file_in_the_place_of_a_graph_makes_way(cache: GraphCache) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    cache.place("one", quantized=False).touch()
    cache.discard("one", quantized=False)
    with cache.making("one", quantized=False) as folder:
        (folder / GRAPH).write_bytes(b"graph")
    assert cache.find("one", quantized=False) is not None


@pytest.mark.parametrize("other", ["platform.machine", "get_cpu_capability", "release"])
def test_a_refusal_holds_for_one_kind_of_processor_and_one_version_of_ours(
    cache: GraphCache, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    cache.refuse("one", "it is off", quantized=False)
    assert cache.refusal("one", quantized=False) == "it is off"
    monkeypatch.setattr(f"capsules.executors.onnx.cache.{other}", lambda: "another")
    assert cache.refusal("one", quantized=False) is None


def test_a_graph_that_was_made_can_be_read_by_whom_the_system_lets_read(cache: GraphCache) -> None:
    before = os.umask(0o027)
    try:
        with cache.making("one", quantized=False) as folder:
            (folder / GRAPH).write_bytes(b"graph")
    finally:
        os.umask(before)
    path = cache.find("one", quantized=False)
    assert path is not None
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o750, 0o640)


def test_a_graph_that_cannot_be_looked_at_is_found(
    cache: GraphCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what hinders it is told, rather than another one made in silence."""

    def refuse(self: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refuse)
    path = cache.find("one", quantized=False)
    assert path is not None
    assert path.name == GRAPH
