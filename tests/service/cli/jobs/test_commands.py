import json
import shlex
import threading
import time
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.jobs.following import Follower
from service.cli.jobs.requests import Jobs
from service.cli.jobs.upload import LARGE_BYTES
from service.jobs.ledger import Ledger
from service.jobs.records import Claim, JobError, Progress
from service.jobs.spec import JobSpec
from tests.service.jobs.samples import METRICS, activation, new_version, report, running
from tests.support.commands import completions, invoke, invoke_json, refusal
from tests.support.job_replies import JOB

CANCELLED = 3


def submit(url: str, rows: Path, *options: str | Path) -> str:
    """Submit rows; the job's id."""
    result = invoke("jobs", "submit", "--train", rows, "--task", "toy", *options, "--url", url)
    assert result.exit_code == 0, result.output
    (job,) = result.stdout.splitlines()
    return job


def take_up(ledger: Ledger, job: str) -> Claim:
    """Begin to work on a job."""
    claim = Claim(job, ledger.get(job).run, "token")
    ledger.start(claim, ledger.take_slot("token", "host", 123, ()).name)
    return claim


def finish(ledger: Ledger, claim: Claim) -> None:
    """Finish two epochs and the job."""
    for epoch in (1, 2):
        ledger.finish_epoch(claim, report(epoch), b"state")
    task = ledger.get(claim.job).spec.task
    ledger.succeed(claim, new_version(task), activation(), METRICS)


# --- submit -----------------------------------------------------------------------------------


def test_submit_writes_the_id_of_the_job(url, ledger, rows):
    job = ledger.get(submit(url, rows))
    assert job.status == "queued"
    assert job.spec == JobSpec(task="toy")
    assert (job.files["train"].name, job.files["train"].rows) == (rows.name, 72)


def test_submit_passes_every_option_on(url, ledger, rows):
    other = rows.with_name("other.csv")
    other.write_text("label,text\nfood,Peel it.\nweather,Will it thaw?\ntravel,Which gate?\n")
    files = ["--validation", other, "--test", other]
    options = (
        "--template 'text: {text}' --label-field label --labels food,weather,travel,other "
        "--word food=eat --word weather=rain --word travel=train --word other=else "
        "--max-bad-rows 0.1 --variant prepending --length 2 --layers 1,2 --epochs 3 --patience 2 "
        "--batch-size 8 --learning-rate 0.1 --max-length 32 --seed 7 --validation-fraction 0.2 "
        "--description Toys --no-activate --metric macro_f1 --min-metric 0.5 "
        "--metadata team=support --metadata a=b=c"
    )
    job = ledger.get(submit(url, rows, *files, *shlex.split(options)))
    assert job.spec.model_dump() == {
        "task": "toy",
        "description": "Toys",
        "template": "text: {text}",
        "labels": ("food", "weather", "travel", "other"),
        "label_field": "label",
        "verbalizers": {"food": "eat", "weather": "rain", "travel": "train", "other": "else"},
        "variant": "prepending",
        "length": 2,
        "layers": (1, 2),
        "epochs": 3,
        "patience": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "max_length": 32,
        "seed": 7,
        "validation_fraction": 0.2,
        "max_bad_rows": 0.1,
        "activate": False,
        "metric": "macro_f1",
        "min_metric": 0.5,
        "metadata": {"team": "support", "a": "b=c"},
    }
    assert set(job.files) == {"train", "validation", "test"}


def test_submit_json_is_the_job(url, rows):
    given = ["--train", rows, "--task", "toy", "--url", url]
    job = invoke_json("jobs", "submit", *given)
    assert (job["object"], job["status"], job["task"]) == ("fine_tuning.job", "queued", "toy")
    assert job == invoke_json("jobs", "show", job["id"], "--url", url)


def test_submit_tells_what_is_odd_about_the_rows(url, rows):
    rows.write_bytes(rows.read_bytes() * 2 + b"nonsense\n")
    result = invoke("jobs", "submit", "--train", rows, "--task", "toy", "--url", url)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1
    told = result.stderr.splitlines()
    assert told
    assert all(line.startswith("warning: ") for line in told)
    shown = invoke("jobs", "show", result.stdout.strip(), "--url", url).stdout.splitlines()
    warnings = [line.split("\t")[1] for line in shown if line.startswith("warning\t")]
    assert told == [f"warning: {warning}" for warning in warnings]


def test_submit_on_a_terminal_says_how_to_follow(url, rows):
    given = ["--train", rows, "--task", "toy", "--url", url]
    result = invoke("jobs", "submit", *given, terminal=True)
    job = result.stdout.strip()
    assert result.stderr == f"Follow it with: capsule jobs watch {job} --url {url}\n"


def test_submit_gzips_a_large_file(url, ledger, rows):
    data = rows.read_bytes()
    rows.write_bytes(data * (LARGE_BYTES // len(data) + 1))
    given = ["--train", rows, "--task", "toy", "--url", url]
    result = invoke("jobs", "submit", *given, terminal=True)
    assert "uploading" in result.stderr
    facts = ledger.get(result.stdout.strip()).files["train"]
    assert facts.name == f"{rows.name}.gz"
    assert facts.size < LARGE_BYTES / 10
    assert facts.rows == len(rows.read_bytes().splitlines())


def test_one_key_is_one_job(url, rows):
    key = ["--idempotency-key", "k1"]
    job = submit(url, rows, *key)
    assert submit(url, rows, *key) == job
    assert submit(url, rows) != job
    again = ["--train", rows, "--task", "toy", "--epochs", "3", *key, "--url", url]
    refusal(invoke("jobs", "submit", *again), 1, "idempotency_key_reused")


def test_an_interrupted_submission_can_be_repeated_under_its_key(url, rows, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jobs, "submit", interrupted)
    given = ["--train", rows, "--task", "toy", "--idempotency-key", "k1", "--url", url]
    result = invoke("jobs", "submit", *given)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "add --idempotency-key k1" in result.stderr


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256])
def test_a_key_that_cannot_be_sent_is_wrong_usage(key, nowhere, rows):
    given = ["--train", rows, "--task", "toy", "--idempotency-key", key, "--url", nowhere]
    refusal(invoke("jobs", "submit", *given), 2, "invalid_option")


def test_what_cannot_be_trained_on_is_refused(url, rows):
    good, one_label = rows.read_bytes(), b'{"text": "a", "label": "b"}\n' * 30
    cases: list[tuple[bytes, list[str], str]] = [
        (one_label, [], "one_class"),
        (b"nonsense\n" * 30, [], "too_many_bad_rows"),
        (good, ["--template", "{body}"], "too_many_bad_rows"),
        (good, ["--template", "{"], "invalid_template"),
        (good, ["--epochs", "0"], "invalid_value"),
    ]
    for content, options, code in cases:
        rows.write_bytes(content)
        given = ["--train", rows, "--task", "toy", *options, "--url", url]
        refusal(invoke("jobs", "submit", *given), 1, code)
    assert invoke_json("jobs", "list", "--url", url) == []


def test_the_first_bad_rows_are_told(url, rows):
    rows.write_bytes(b'{"text": "a", "label": ""}\nnonsense\n' * 30)
    given = ["--train", rows, "--task", "toy", "--url", url]
    told = refusal(invoke("jobs", "submit", *given), 1, "too_many_bad_rows").splitlines()
    assert len(told) == 21
    assert told[1].startswith("  train: line 1: ")
    assert told[2].startswith("  train: line 2: ")
    several = ["--epochs", "0", "--metric", "luck", "--url", url]
    given = ["--train", rows, "--task", "toy", *several]
    told = refusal(invoke("jobs", "submit", *given), 1, "invalid_request").splitlines()
    assert "epochs: " in told[0]
    assert told[1].startswith("  metric: ")


def test_a_format_that_is_not_known_is_refused_before_it_is_sent(nowhere, tmp_path):
    file = tmp_path / "rows.xlsx"
    file.write_bytes(b"rows")
    given = ["--train", file, "--task", "toy", "--url", nowhere]
    refusal(invoke("jobs", "submit", *given), 1, "unsupported_format")


@pytest.mark.parametrize("given", [["--task", "toy"], ["--train", "none.jsonl", "--task", "toy"]])
def test_submit_needs_rows(given, nowhere):
    result = invoke("jobs", "submit", *given, "--url", nowhere)
    assert (result.exit_code, result.stdout) == (2, "")


def test_submit_and_watch(url, ledger, rows):
    """The id first, in the same form as the events after it."""
    worker = threading.Thread(target=work_on_the_next, args=(ledger,))
    worker.start()
    given = ["--train", rows, "--task", "toy", "--watch", "--url", url]
    result = invoke("jobs", "submit", *given, "--json")
    worker.join()
    assert result.exit_code == 0, result.output
    job, *events = [json.loads(line) for line in result.stdout.splitlines()]
    assert job["object"] == "fine_tuning.job"
    assert {event["object"] for event in events} == {"fine_tuning.job.event"}
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))


def work_on_the_next(ledger: Ledger) -> None:
    """Wait for a job, and do it."""
    end = time.monotonic() + 20
    while not ledger.queued():
        assert time.monotonic() < end, "no job came"
        time.sleep(0.02)
    ((job, _),) = ledger.queued()
    finish(ledger, take_up(ledger, job))


# --- list and show ----------------------------------------------------------------------------


def listed(url: str, *options: str) -> list[list[str]]:
    """The cells of the listed jobs."""
    result = invoke("jobs", "list", *options, "--url", url)
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_list(url, ledger):
    assert listed(url) == []
    done = running(ledger, task="one")
    finish(ledger, done)
    claim = running(ledger, task="two", epochs=7)
    ledger.finish_epoch(claim, report(1), b"state")
    ledger.progress(claim, Progress(2, 7, 1, 3, 0.5, 12.0))
    second, first = listed(url)
    assert second[:6] == [claim.job, "two", "running", "2", "7", "0.75"]
    assert first[:6] == [done.job, "one", "succeeded", "2", "50", "0.75"]
    assert first[6].endswith("Z")
    assert [line[0] for line in listed(url, "--task", "one")] == [done.job]
    assert [line[0] for line in listed(url, "--status", "running")] == [claim.job]
    assert [line[0] for line in listed(url, "--limit", "1")] == [claim.job]
    assert len(listed(url, "--limit", "0")) == 2
    assert [job["id"] for job in invoke_json("jobs", "list", "--url", url)] == [claim.job, done.job]
    refusal(invoke("jobs", "list", "--status", "idle", "--url", url), 1, "invalid_value")


def test_list_in_a_table(url, ledger, rows):
    finish(ledger, running(ledger))
    submit(url, rows)
    shown = invoke("jobs", "list", "--url", url, terminal=True).stdout
    for text in ("2 jobs", "queued (1)", "succeeded", "2/50", "0/50", "0.7500", " s "):
        assert text in shown


def test_show(url, ledger):
    claim = running(ledger, metadata={"team": "support"})
    finish(ledger, claim)
    result = invoke("jobs", "show", claim.job, "--url", url)
    assert result.exit_code == 0, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    for line in (
        ["id", claim.job],
        ["status", "succeeded"],
        ["n_epochs", "50"],
        ["version", "spam@1"],
        ["activated", "True"],
        ["validation_accuracy", "0.75"],
        ["metadata.team", "support"],
        ["file", "train", "rows.csv", "9", "1", "2", "1", "0"],
        ["class", "train", "ham", "5"],
        ["left_out", "train", "3", "the label is missing"],
        ["file", "validation", "more.csv", "9", "1", "2", "1", "3"],
        ["epoch_report", "2", "0.5", "1.0", "0.75", "", "1.5"],
    ):
        assert line in lines
    shown = invoke("jobs", "show", claim.job, "--url", url, terminal=True).stdout
    for text in (
        claim.job,
        "spam@1",
        "more.csv",
        "späm 🙂",
        "2 epochs",
        "train, line 3: the label",
    ):
        assert text in shown


def test_of_many_labels_the_table_has_the_first(url, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"t{n},label-{n % 60:02}\n" for n in range(240)))
    job = submit(url, rows)
    shown = invoke("jobs", "show", job, "--url", url, terminal=True).stdout
    assert "label-49" in shown
    assert "label-50" not in shown
    assert "and 10 more labels; --json has all" in shown


def test_show_tells_how_far_a_job_is_and_why_it_failed(url, ledger):
    claim = running(ledger)
    ledger.progress(claim, Progress(2, 7, 1, 3, 0.5, 12.0))
    lines = invoke("jobs", "show", claim.job, "--url", url).stdout.splitlines()
    assert {"epoch\t2/7", "step\t1/3", "loss\t0.5", "seconds_left\t12.0"} <= set(lines)
    ledger.fail(claim, JobError("no_luck", "It was not meant to be."))
    shown = invoke("jobs", "show", claim.job, "--url", url).stdout
    assert "error\tIt was not meant to be. [no_luck]\n" in shown
    assert "step\t" not in shown


# --- cancel, resume, rm -----------------------------------------------------------------------


def test_cancel_resume_and_remove(url, ledger, rows):
    job = submit(url, rows)
    at = ["--url", url]
    refusal(invoke("jobs", "rm", job, *at), 1, "job_not_ended")
    refusal(invoke("jobs", "resume", job, *at), 1, "job_not_resumable")
    assert invoke("jobs", "cancel", job, *at).stdout == f"{job}\tcancelled\n"
    assert invoke_json("jobs", "resume", job, *at)["status"] == "queued"
    assert ledger.get(job).run == 2
    told = invoke("jobs", "cancel", job, *at, terminal=True)
    assert told.stdout == f"{job} is cancelled.\n"
    assert f"capsule jobs resume {job} --url {url}" in told.stderr
    told = invoke("jobs", "resume", job, *at, terminal=True)
    assert f"capsule jobs watch {job} --url {url}" in told.stderr
    invoke("jobs", "cancel", job, *at)
    assert invoke("jobs", "rm", job, *at).stdout == f"{job}\tdeleted\n"
    for command in ("show", "watch", "cancel", "resume", "rm"):
        refusal(invoke("jobs", command, job, *at), 1, "job_not_found")


def test_what_has_succeeded_is_neither_cancelled_nor_resumed(url, ledger):
    claim = running(ledger)
    finish(ledger, claim)
    refusal(invoke("jobs", "cancel", claim.job, "--url", url), 1, "job_ended")
    refusal(invoke("jobs", "resume", claim.job, "--url", url), 1, "job_not_resumable")
    gone = invoke("jobs", "rm", claim.job, "--url", url, terminal=True)
    assert gone.stdout == f"Deleted {claim.job}.\n"


@pytest.mark.parametrize("command", ["show", "watch", "cancel", "resume", "rm"])
def test_without_a_server_it_says_how_to_start_one(command, nowhere):
    told = refusal(invoke("jobs", command, JOB, "--url", nowhere), 1, "server_unreachable")
    assert "capsule serve" in told
    refusal(invoke("jobs", command, "../x", "--url", nowhere), 2, "invalid_job_id")


# --- watch ------------------------------------------------------------------------------------


def watched(url: str, job: str, *options: str, terminal: bool = False) -> Result:
    """What `watch` makes of a job."""
    return invoke("jobs", "watch", job, *options, "--url", url, terminal=terminal)


def test_watch_tells_the_events_of_a_job_that_has_ended(url, ledger):
    claim = running(ledger)
    finish(ledger, claim)
    result = watched(url, claim.job)
    assert (result.exit_code, result.stderr) == (0, "")
    events, _ = ledger.events(claim.job)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(line[0], line[2], line[3], line[4]) for line in lines] == [
        (str(event.number), event.level, event.type, event.message) for event in events
    ]
    as_json = watched(url, claim.job, "--json")
    assert [json.loads(line)["data"] for line in as_json.stdout.splitlines()] == [
        event.data for event in events
    ]


def test_watch_on_a_terminal_ends_with_what_came_of_it(url, ledger):
    claim = running(ledger)
    finish(ledger, claim)
    result = watched(url, claim.job, terminal=True)
    assert result.exit_code == 0, result.output
    for text in ("spam@1", "validation_accuracy", "0.7500", "served", "Nothing was served before."):
        assert text in result.stdout
    for event in ledger.events(claim.job)[0]:
        assert event.message in result.stderr


def test_watch_sees_things_happen(url, ledger):
    claim = running(ledger)
    ledger.progress(claim, Progress(1, 50, 1, 3, 0.5, 12.0))
    worker = threading.Timer(1.5, finish, args=(ledger, claim))
    worker.start()
    result = watched(url, claim.job, terminal=True)
    worker.join()
    assert result.exit_code == 0, result.output
    # Of the bar, before anything had happened.
    assert "epoch 1/50  step 1/3  loss 0.5000" in result.stderr
    assert "12 s left" in result.stderr


def test_watch_fails_with_the_job(url, ledger):
    claim = running(ledger)
    ledger.fail(claim, JobError("no_luck", "It was not meant to be."))
    result = watched(url, claim.job)
    assert result.exit_code == 1
    assert "error [no_luck]: It was not meant to be." in result.stderr
    assert f"capsule jobs resume {claim.job} --url {url}" in result.stderr


def test_a_job_that_was_cancelled_has_an_exit_code_of_its_own(url, ledger):
    claim = running(ledger)
    ledger.cancel(claim.job)
    for terminal in (False, True):
        result = watched(url, claim.job, terminal=terminal)
        assert result.exit_code == CANCELLED
        assert f"capsule jobs resume {claim.job} --url {url}" in result.stderr


def test_an_interrupt_leaves_the_job_alone(url, ledger, monkeypatch):
    def interrupted(self: Follower) -> None:
        raise KeyboardInterrupt

    claim = running(ledger)
    monkeypatch.setattr(Follower, "__iter__", interrupted)
    for terminal in (False, True):
        result = watched(url, claim.job, terminal=terminal)
        assert result.exit_code == 130
        assert f"job {claim.job} goes on" in result.stderr
        assert f"capsule jobs watch {claim.job} --url {url}" in result.stderr
    assert ledger.get(claim.job).status == "running"


# --- completion -------------------------------------------------------------------------------


def test_ids_are_completed(url, ledger, nowhere):
    jobs = [running(ledger).job for _ in range(2)]
    assert completions("capsule jobs watch ft", url) == jobs[::-1]
    assert completions(f"capsule jobs cancel {jobs[0]}", url) == [jobs[0]]
    assert completions("capsule jobs watch ft", nowhere) == []
    assert completions("capsule jobs res", nowhere) == ["resume"]
