import json
import subprocess
import sys

import pytest

from capsules.artefact.file import digest
from tests.support.commands import ROOT, invoke, invoke_json, refusal
from tests.support.edge import an_artefact


def test_push_tells_what_is_new(url, file, tmp_path):
    other = tmp_path / "other.safetensors"
    other.write_bytes(an_artefact("new", labels=("a", "b", "c"), seed=2))
    result = invoke("push", file, other, file, "--url", url)
    assert result.exit_code == 0, result.output
    first, second = digest(file.read_bytes()), digest(other.read_bytes())
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        [str(file), "created", "new", "1", first, ""],
        [str(other), "created", "new", "2", second, ""],
        [str(file), "unchanged", "new", "1", first, ""],
    ]


def test_push_json(url, file):
    (pushed,) = invoke_json("push", file, "--url", url)
    assert pushed.pop("created_at")
    assert pushed == {
        "file": str(file),
        "status": "created",
        "task": "new",
        "version": 1,
        "digest": digest(file.read_bytes()),
        "bytes": file.stat().st_size,
        "source": "upload",
        "held": False,
        "job": None,
    }


def test_a_file_that_is_refused_does_not_stop_the_others(url, file, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x80\x04\x95 a pickle")
    result = invoke("push", bad, file, "--url", url, "--json")
    assert result.exit_code == 1
    assert "error [not_safetensors]: " in result.stderr
    assert str(bad) in result.stderr
    first, second = json.loads(result.stdout)
    assert (first["status"], first["error"]["code"]) == ("failed", "not_safetensors")
    assert (second["status"], second["task"]) == ("created", "new")


def test_push_stops_where_there_is_no_server(nowhere, file):
    result = invoke("push", file, file, "--url", nowhere)
    assert result.exit_code == 1
    assert result.stderr.count("server_unreachable") == 1
    assert result.stdout == f"{file}\tfailed\t\t\t\tserver_unreachable\n"


def test_push_in_a_table(url, file):
    result = invoke("push", file, "--url", url, terminal=True)
    assert result.exit_code == 0
    assert "created" in result.stdout
    assert digest(file.read_bytes())[:12] in result.stdout
    assert "\t" not in result.stdout


def test_nothing_is_pushed_if_a_file_is_not_there(url, file, tmp_path):
    result = invoke("push", file, tmp_path / "none", "--url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert [task["task"] for task in invoke_json("list", "--url", url)] == ["trec"]


def test_list(url, file):
    invoke("push", file, "--url", url)
    result = invoke("list", "--url", url)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[:6] for line in lines] == [
        ["new", "1", "1", "3", "served", ""],
        ["trec", "1", "1", "2", "served", ""],
    ]
    tasks = invoke_json("list", "--url", url)
    assert [(task["task"], task["num_classes"]) for task in tasks] == [("new", 3), ("trec", 2)]
    table = invoke("list", "--url", url, terminal=True)
    assert "2 tasks" in table.stdout


def test_list_of_one_task(url, file):
    for seed in (1, 2):
        file.write_bytes(an_artefact("new", seed=seed))
        invoke("push", file, "--url", url)
    result = invoke("list", "new", "--url", url)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[:6] for line in lines] == [
        ["1", "", "3", "served", "", "upload"],
        ["2", "default", "3", "served", "", "upload"],
    ]
    assert lines[1][-1] == digest(file.read_bytes())
    shown = invoke_json("list", "new", "--url", url)
    assert (shown["task"], shown["version"], len(shown["versions"])) == ("new", 2, 2)
    table = invoke("list", "new", "--url", url, terminal=True)
    assert "new is version 2" in table.stdout


def test_classify(unchanged):
    result = invoke("classify", "trec", "one text", "another", "--url", unchanged)
    assert result.exit_code == 0, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert len(lines) == 2
    assert {line[0] for line in lines} < {"no", "yes"}
    assert all(0.5 <= float(line[1]) <= 1.0 and line[2] == "" for line in lines)


@pytest.mark.parametrize(("top_k", "shown"), [("1", 1), ("2", 2), ("0", 2)])
def test_classify_shows_as_many_labels_as_are_wanted(top_k, shown, unchanged):
    given = ["classify", "trec", "text", "--url", unchanged, "--top-k", top_k]
    row = json.loads(invoke(*given, "--json").stdout)
    assert len(row["labels"]) == len(row["probs"]) == shown
    assert (row["task"], row["version"], row["num_classes"]) == ("trec", 1, 2)
    assert row["label"] == row["labels"][row["probs"].index(max(row["probs"]))]


def test_classify_reads_lines(unchanged):
    lines = "".join(f"text {number}\n" for number in range(120))
    result = invoke("classify", "trec@1", "--url", unchanged, "--json", stdin=lines)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["index"] for row in rows] == list(range(120))
    assert {row["error"] for row in rows} == {None}


def test_classify_named_inputs(url, file, engine):
    file.write_bytes(an_artefact("pairs", template="{premise} and {claim}"))
    invoke("push", file, "--url", url)
    rows = [{"premise": "a", "claim": "b"}, {"premise": "é=", "claim": "d"}]
    by_flag = ["--input", "premise=é=", "-i", "claim=d"]
    assert invoke("classify", "pairs", *by_flag, "--url", url).exit_code == 0
    assert engine.asked[-1][0].inputs == rows[1]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert invoke("classify", "pairs", "--json-lines", "--url", url, stdin=lines).exit_code == 0
    assert [row.inputs for row in engine.asked[-1]] == rows


@pytest.mark.parametrize(
    ("stdin", "options", "codes"),
    [
        (b"good\n\ngood\n", [], [None, "empty_text", None]),
        (b"good\nbad \xff\n", [], [None, "invalid_text"]),
        (b"\n", [], ["empty_text"]),
        (b'"good"\n{"a": 1}\n{\n', ["--json-lines"], [None, "invalid_value", "invalid_json"]),
        (b'{"text": "x"}\n{"other": "x"}\n', ["--json-lines"], [None, "missing_input"]),
        (b'{"other": "x"}\n', ["--json-lines"], ["missing_input"]),
    ],
)
def test_classify_fails_if_a_text_does(stdin, options, codes, unchanged):
    given = ["classify", "trec", *options, "--url", unchanged]
    result = invoke(*given, "--json", stdin=stdin)
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["error"] and row["error"]["code"] for row in rows] == codes
    plain = invoke(*given, stdin=stdin)
    assert [line.split("\t")[2] or None for line in plain.stdout.splitlines()] == codes


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("none", "task_not_found"),
        ("trec@9", "version_not_found"),
        ("trec:prod", "alias_not_found"),
        ("No/Name", "invalid_task_name"),
    ],
)
@pytest.mark.parametrize("texts", [["one"], ["one", "two"]])
def test_classify_under_what_does_not_exist(task, code, texts, unchanged):
    refusal(invoke("classify", task, *texts, "--url", unchanged), 1, code)


def test_classify_input_goes_with_nothing_else(nowhere):
    for given in (["text"], ["--json-lines"]):
        result = invoke("classify", "trec", "-i", "a=b", *given, "--url", nowhere)
        refusal(result, 2, "invalid_option")


def test_classify_refuses_a_task_that_is_no_text(nowhere):
    refusal(invoke("classify", "\udcff", "x", "--url", nowhere), 2, "invalid_task_name")


def test_rm_of_a_version_and_of_a_task(url, file):
    for seed in (1, 2, 3):
        file.write_bytes(an_artefact("new", seed=seed))
        invoke("push", file, "--url", url)
    result = invoke("rm", "new@3", "--url", url)
    assert (result.exit_code, result.stdout) == (0, "new\t3\t\n")
    shown = invoke("rm", "new@2", "--url", url, terminal=True)
    assert shown.stdout == "Deleted new, version 2.\n"
    gone = invoke_json("rm", "new", "--url", url)
    assert gone == {"task": "new", "versions": [1], "aliases": []}
    refusal(invoke("rm", "new", "--url", url), 1, "task_not_found")
    refusal(invoke("rm", "trec@7", "--url", url), 1, "version_not_found")


@pytest.mark.parametrize("reference", ["", "a/b", "..", "trec@", "trec@0", "trec@x", "trec:prod"])
def test_rm_takes_a_task_or_a_version(reference, nowhere):
    refusal(invoke("rm", reference, "--url", nowhere), 2, "invalid_task_name")


@pytest.mark.parametrize("name", ["a/b", "..", "trec@1", "\udcff"])
def test_list_takes_a_task(name, nowhere):
    refusal(invoke("list", name, "--url", nowhere), 2, "invalid_task_name")


@pytest.mark.parametrize("command", [["list"], ["list", "x"], ["classify", "x", "y"], ["rm", "x"]])
def test_without_a_server_it_says_how_to_start_one(command, nowhere):
    told = refusal(invoke(*command, "--url", nowhere), 1, "server_unreachable")
    assert "capsule serve" in told
    assert nowhere in told


def test_the_server_may_come_from_the_environment(url, monkeypatch, nowhere):
    given = ["list", "--json"]
    monkeypatch.setenv("CAPSULE_URL", url)
    result = subprocess.run(
        [sys.executable, "-m", "service", *given], cwd=ROOT, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert [task["task"] for task in json.loads(result.stdout)] == ["trec"]
    refusal(invoke(*given, "--url", nowhere), 1, "server_unreachable")
