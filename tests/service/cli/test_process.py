"""The whole way as a user goes it, each step a process of its own, on the embedded backbone."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capsules.artefact.file import digest
from tests.support.commands import COMMAND, PATIENCE_S, environment, invoke, invoke_json, start
from tests.support.toy_rows import toy_file, toy_rows

pytestmark = pytest.mark.timeout(PATIENCE_S)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a command wrote; it must succeed."""
    output, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages
    return output, messages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A server of its own, which warms up while other things go on."""
    log = folder / "server.log"
    arguments = ["serve", "--port", "0", "--data-dir", "data", "--no-load-zoo", "--threads", "1"]
    with log.open("w") as file:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
        assert process.stdout is not None
        port = next(
            event["port"]
            for event in map(json.loads, process.stdout)
            if event["event"] == "listening"
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, log.read_text()) == (0, "")


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Any]:
    """What `capsule train` says of a capsule that it wrote."""
    data = toy_file(folder)
    data.write_bytes(data.read_bytes() + b'{"text": "", "label": "food"}\n')
    arguments = ["train", data.name, "--task", "toy", "--epochs", "2", "--threads", "1", "--json"]
    output, messages = finish(start(arguments, folder))
    assert "line 73: field 'text' is empty" in messages
    assert "epoch 2/2" in messages
    shown: dict[str, Any] = json.loads(output)
    return shown


def test_train_push_classify_list_and_remove(url, trained, folder):
    file = folder / trained["file"]
    assert file.name == "toy.safetensors"
    assert trained["digest"] == digest(file.read_bytes())
    assert (trained["bad_rows"], trained["epochs"]) == (1, 2)
    assert trained["metrics"]["validation_accuracy"] >= 0.75

    # Waits for the server to be warm, if it is not yet.
    output, _ = finish(start(["push", file.name, "--url", url, "--timeout", "120"], folder))
    assert output == f"{file.name}\tcreated\ttoy\t1\t{trained['digest']}\t\n"
    assert invoke("push", file, "--url", url).stdout.split("\t")[1] == "unchanged"

    rows = toy_rows()
    texts = "".join(row["text"] + "\n" for row in rows)
    answers = invoke("classify", "toy", "--url", url, "--json", stdin=texts)
    assert answers.exit_code == 0, answers.output
    found = [json.loads(line) for line in answers.stdout.splitlines()]
    assert {(one["version"], one["digest"]) for one in found} == {(1, trained["digest"])}
    right = sum(one["label"] == row["label"] for one, row in zip(found, rows, strict=True))
    assert right >= 0.9 * len(rows)

    (task,) = invoke_json("list", "--url", url)
    assert (task["task"], task["version"], task["num_classes"]) == ("toy", 1, 3)
    assert invoke("rm", "toy", "--url", url).exit_code == 0
    assert invoke_json("list", "--url", url) == []


def test_the_trained_file_is_measured_without_a_server(trained, folder):
    data = toy_file(folder, "clean.jsonl")
    shown = invoke_json("evaluate", folder / trained["file"], data, "--threads", "1")
    assert shown["accuracy"] >= 0.9
    assert shown["digest"] == trained["digest"]
