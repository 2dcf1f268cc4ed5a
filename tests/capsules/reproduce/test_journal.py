import json

import pytest

from capsules.errors import DataError, OptionError, TrainingError
from capsules.reproduce.journal import CONFIGURATION, RUNS, Journal, read_rows

KEY = ("cb", "capsule", 0)


@pytest.fixture
def journal(tmp_path, configuration):
    return Journal(tmp_path / "new" / "runs", configuration)


def again(journal):
    return Journal(journal.folder, journal.configuration)


def test_rows_are_found_again(journal, make_row):
    journal.add(make_row(seed=0))
    journal.add(make_row(seed=1))
    found = again(journal)
    assert found.rows == journal.rows == [make_row(seed=0), make_row(seed=1)]
    assert found.find(("cb", "capsule", 1), "cb-capsule-1") == make_row(seed=1)
    assert found.find(("cb", "capsule", 2), "cb-capsule-2") is None


def test_line_cut_short_by_a_crash_is_dropped(journal, make_row):
    journal.add(make_row())
    path = journal.folder / RUNS
    whole = path.read_bytes()
    path.write_bytes(whole + make_row(seed=1).model_dump_json().encode()[:70])
    found = again(journal)
    assert found.rows == [make_row()]
    found.add(make_row(seed=2))
    assert again(journal).rows == [make_row(), make_row(seed=2)]


def test_line_that_is_no_run_is_named(journal, make_row):
    journal.add(make_row())
    path = journal.folder / RUNS
    row = json.loads(path.read_text())
    del row["seed"]
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=r"runs\.jsonl, line 2, is no finished run \(seed: "):
        again(journal)
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="line 1, is no finished run"):
        read_rows(path)


def test_no_file_is_no_rows(tmp_path):
    assert read_rows(tmp_path / RUNS) == []


def test_folder_of_other_options_is_refused(journal):
    settings = journal.configuration.settings.model_copy(update={"epochs": 9})
    other = journal.configuration.model_copy(update={"settings": settings})
    with pytest.raises(OptionError, match="holds runs with epochs 3, not 9"):
        Journal(journal.folder, other)


def test_folder_of_another_backbone_is_refused(journal):
    backbone = journal.configuration.backbone.model_copy(update={"fingerprint": "e" * 64})
    other = journal.configuration.model_copy(update={"backbone": backbone})
    with pytest.raises(OptionError, match="another backbone, tiny/encoder"):
        Journal(journal.folder, other)


def test_same_backbone_at_another_place_is_the_same(journal):
    backbone = journal.configuration.backbone.model_copy(update={"id": "moved"})
    other = journal.configuration.model_copy(update={"backbone": backbone})
    assert Journal(journal.folder, other).rows == []


def test_folder_of_something_else_is_refused(journal):
    (journal.folder / CONFIGURATION).write_text("{}")
    with pytest.raises(OptionError, match="not the configuration of a comparison"):
        again(journal)


def test_same_run_on_other_rows_is_refused(journal, make_row):
    journal.add(make_row())
    with pytest.raises(OptionError, match="a run of cb, capsule, seed 0 on other rows"):
        journal.find(("cb", "capsule", 0), "other")


def test_rates_of_a_method_are_not_mixed(journal, make_row):
    journal.add(make_row(rates=(0.01, 0.02)))
    journal.require_rates("capsule", (0.01, 0.02))
    journal.require_rates("lora", (0.5,))
    with pytest.raises(OptionError, match=r"learning rates 0\.01, 0\.02, not 0\.5"):
        journal.require_rates("capsule", (0.5,))


def test_folder_that_cannot_be_made(tmp_path, configuration):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match=r"cannot be written to .*--output"):
        Journal(tmp_path / "file" / "runs", configuration)


def test_folder_that_can_no_longer_be_written(journal, make_row):
    (journal.folder / RUNS).mkdir()
    (journal.folder / "results.md").mkdir()
    (journal.folder / "capsules").write_text("")
    for write in (
        lambda: journal.add(make_row()),
        lambda: journal.write("results.md", "text"),
        lambda: journal.keep_capsule(KEY, b"bytes"),
    ):
        with pytest.raises(TrainingError, match="Finished runs are kept"):
            write()
    assert journal.rows == []


def test_files_are_replaced(journal):
    journal.write("results.md", "old")
    path = journal.write("results.md", "new")
    assert path.read_text() == "new"
    journal.keep_capsule(KEY, b"1")
    journal.keep_capsule(KEY, b"2")
    assert journal.capsule(KEY) == journal.folder / "capsules" / "cb-capsule-0.safetensors"
    assert journal.capsule(KEY).read_bytes() == b"2"
    assert not list(journal.folder.glob(".*"))
