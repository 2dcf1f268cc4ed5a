import pytest

from capsules.artefact.file import dump
from capsules.errors import DataError
from capsules.reproduce import inspection
from capsules.reproduce.inspection import read_insights, shared_seeds, write_inspection
from capsules.reproduce.report import inside
from tests.support.capsules import random_capsule


@pytest.fixture
def runs(tiny, tmp_path, make_row, monkeypatch):
    """Recorded runs of trec on the tiny backbone, and the capsules that they trained."""
    monkeypatch.setattr(inspection, "load_of", lambda _specification, _device: tiny)
    folder = tmp_path / "runs"
    (folder / "capsules").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    lines = []
    for method, variant in (("capsule", "addition"), ("task-only", "task-only")):
        capsule = random_capsule(tiny.info, labels=("no", "yes"), variant=variant)
        (folder / "capsules" / f"trec-{method}-1.safetensors").write_bytes(dump(capsule))
        lines.append(make_row("trec", method, 1).model_dump_json())
    (tmp_path / "results" / "tiny.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_what_is_written_is_what_the_page_tells(runs, data, tmp_path):
    results, images = tmp_path / "results", tmp_path / "img"
    written = write_inspection(runs, data, results, images, "tiny")
    assert [path.name for path in written] == [
        "results-tiny-attention-trec.png",
        "tiny-insight.json",
    ]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    ((one,),) = read_insights(results).values()
    assert (one.task, one.seed, one.texts, len(one.layers)) == ("trec", 1, 12, 3)
    text = inside("tiny", one)
    assert text.startswith("### trec (tiny)\n")
    assert f"{one.same_answers} of the 12 answers are the same" in text
    assert f"| 3 | {one.layers[2].attention:.3f} |" in text
    assert f"(img/{written[0].name})" in text


def test_only_recorded_runs_are_looked_into(runs, data, tmp_path):
    with pytest.raises(DataError, match="record them first"):
        write_inspection(runs, data, tmp_path / "results", tmp_path / "img", "another")


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "tiny-insight.json").write_text("[{}]")
    with pytest.raises(DataError, match="write it again"):
        read_insights(tmp_path)


def test_seed_is_the_first_that_both_methods_have():
    keys = {
        ("cb", "capsule", 0),
        ("cb", "capsule", 1),
        ("cb", "task-only", 1),
        ("cb", "capsule", 2),
        ("cb", "task-only", 2),
        ("copa", "capsule", 0),
    }
    assert shared_seeds(keys) == {"cb": 1}
