import shlex
from pathlib import Path

import pytest

from capsules.errors import DataError
from capsules.reproduce.__main__ import main
from capsules.reproduce.inspection import attention_image, read_insights
from capsules.reproduce.page import commands, section
from capsules.reproduce.report import (
    BEGIN,
    DOCUMENT,
    END,
    NOTHING,
    images,
    insert,
    parts,
    read_files,
    write_report,
)

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("instance term", "inside", "claims", "runs")
PLACES = "".join(f"## {name}\n{BEGIN.format(name=name)}\nold\n{END}\n" for name in NAMES)


@pytest.fixture
def docs(tmp_path, make_row):
    """A folder with a page that has a place for every part, and runs to put there."""
    (tmp_path / "results").mkdir()
    rows = [make_row("cb", method, seed) for method in ("capsule", "task-only") for seed in (0, 1)]
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    (tmp_path / "results" / "tiny.jsonl").write_text(lines)
    (tmp_path / DOCUMENT).write_text(f"Before.\n{PLACES}After.\n")
    return tmp_path


def test_runs_are_written_up_between_their_marks(docs):
    written = write_report(docs)
    text = (docs / DOCUMENT).read_text()
    rows = read_files(docs / "results")["tiny"]
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert section(rows, "tiny") in text
    assert "### tiny: tiny/encoder" in text
    assert "Both score the same with every seed on cb." in text
    assert [path.name for path in written] == [
        "results-tiny-parameters.png",
        "results-tiny-time.png",
        DOCUMENT,
    ]


def test_pictures_that_the_page_shows_are_there(docs):
    write_report(docs)
    links = [part.split(")")[0] for part in images("tiny").split("](")[1:]]
    assert len(links) == 2
    assert all((docs / link).exists() for link in links)


def test_writing_twice_changes_nothing(docs):
    paths = write_report(docs)
    before = [path.read_bytes() for path in paths]
    write_report(docs)
    assert [path.read_bytes() for path in paths] == before


def test_without_runs_the_page_says_so(tmp_path):
    assert set(parts({}, {}).values()) == {NOTHING}
    (tmp_path / DOCUMENT).write_text(PLACES)
    assert write_report(tmp_path) == [tmp_path / DOCUMENT]


def test_runs_without_the_pair_in_question_have_no_table(make_row):
    found = parts({"tiny": [make_row()]}, {})
    assert found["instance term"].startswith("No set has been run")
    assert "|" not in found["instance term"]


@pytest.mark.parametrize("document", ["", BEGIN.format(name="runs"), PLACES.replace("-->", "")])
def test_page_needs_a_place_for_each_part(document):
    with pytest.raises(DataError, match="no place for 'runs'"):
        insert(document, {"runs": "new"})


def test_file_of_several_configurations_is_refused(docs, make_row, configuration):
    settings = configuration.settings.model_copy(update={"epochs": 9})
    longer = configuration.model_copy(update={"settings": settings})
    path = docs / "results" / "tiny.jsonl"
    path.write_text(path.read_text() + make_row(configuration=longer).model_dump_json() + "\n")
    with pytest.raises(DataError, match="several configurations"):
        write_report(docs)


def test_command_writes_the_page(docs, capsys):
    (docs / "results" / "tiny.jsonl").unlink()
    assert main(["--report", "--docs", str(docs)]) == 0
    assert str(docs / DOCUMENT) in capsys.readouterr().out.replace("\n", "")
    (docs / DOCUMENT).write_text("")
    assert main(["--report", "--docs", str(docs)]) == 1
    assert main(["--report", "--docs", str(docs / "absent")]) == 1


def test_command_needs_to_be_told_what_to_do():
    with pytest.raises(SystemExit, match="2"):
        main([])


def test_inspecting_needs_the_sets_and_a_name(docs):
    with pytest.raises(SystemExit, match="2"):
        main(["--inspect", str(docs), "--data", str(docs)])


def test_inspecting_runs_that_are_not_recorded_fails(docs, capsys):
    options = ["--inspect", str(docs), "--data", str(docs), "--docs", str(docs)]
    assert main([*options, "--name", "absent"]) == 1
    assert "record them first" in capsys.readouterr().err


def test_script_makes_all_runs_again(docs, capsys):
    (docs / "results" / "tiny-insight.json").write_text("[]")
    options = ["--data", "my sets", "--docs", str(docs), "--device", "cuda"]
    assert main(["--script", "out", *options]) == 0
    first, runs, copy, inspect, report = capsys.readouterr().out.splitlines()
    assert first == "set -eu"
    words = shlex.split(runs)
    assert words[:2] == ["capsule", "reproduce"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given["--data"] == "my sets"
    assert (given["--device"], given["--output"]) == ("cuda", "out/tiny")
    assert (given["--tasks"], given["--methods"], given["--seeds"]) == (
        "cb",
        "capsule,task-only",
        "2",
    )
    assert shlex.split(copy) == ["cp", "out/tiny/runs.jsonl", str(docs / "results" / "tiny.jsonl")]
    assert "--inspect out/tiny" in inspect
    assert report == f"python -m capsules.reproduce --report --docs {docs}"


def test_script_may_be_of_one_file_alone(docs, capsys):
    options = ["--script", "out", "--data", "sets", "--docs", str(docs), "--name"]
    assert main([*options, "tiny"]) == 0
    capsys.readouterr()
    assert main([*options, "absent"]) == 1
    told = capsys.readouterr()
    # Nothing that a shell would take for a command.
    assert told.out == ""
    assert "has no runs named 'absent'; it has tiny." in told.err
    with pytest.raises(SystemExit, match="2"):
        main(["--script", "out"])


def test_script_leaves_out_a_backbone_that_is_not_here(docs, make_row, configuration, capsys):
    backbone = configuration.backbone.model_copy(update={"specification": "nowhere/model.gguf"})
    row = make_row(configuration=configuration.model_copy(update={"backbone": backbone}))
    (docs / "results" / "other.jsonl").write_text(row.model_dump_json() + "\n")
    assert main(["--script", "out", "--data", "sets", "--docs", str(docs)]) == 0
    told = capsys.readouterr()
    assert "out/tiny" in told.out
    assert "model.gguf" not in told.out
    assert "other is left out: its backbone is not here as nowhere/model.gguf." in told.err


def test_each_command_has_the_rates_of_its_own_methods(make_row):
    rows = [
        make_row("cb", "capsule"),
        make_row("copa", "capsule"),
        make_row("copa", "lora", rates=(0.005,)),
    ]
    alone, both = commands(rows)
    assert "--learning-rates lora=" not in alone
    assert "--learning-rates lora=0.005" in both


def test_page_of_the_project_is_that_of_its_runs():
    """Whoever records runs also writes them up."""
    document = (ROOT / "docs" / DOCUMENT).read_text()
    results = ROOT / "docs" / "results"
    files, insights = read_files(results), read_insights(results)
    assert insert(document, parts(files, insights)) == document
    assert set(insights) <= set(files)
    for stem, seen in insights.items():
        keys = {(row.task, row.method, row.seed) for row in files[stem]}
        for one in seen:
            assert {(one.task, "capsule", one.seed), (one.task, "task-only", one.seed)} <= keys
            assert (ROOT / "docs" / "img" / attention_image(stem, one.task)).exists()
    for stem in files:
        for plot in ("parameters", "time"):
            assert (ROOT / "docs" / "img" / f"results-{stem}-{plot}.png").exists()
