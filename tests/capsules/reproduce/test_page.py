import shlex

from capsules.reproduce.page import commands, provenance, section, summary
from capsules.reproduce.record import Skip

SKIP = Skip(task="multirc", method=None, seed=None, reason="It is absent.")


def test_section_says_what_was_run_and_how(make_row):
    text = section([make_row(seed=0), make_row(seed=1)])
    assert text.startswith("### tiny/encoder\n")
    assert "Up to 3 epochs" in text
    assert "| capsule | 0.750 ± 0.000 |" in text
    assert "2 runs, 2026-03-01, on Abacus 5 (2 cores, 2 threads), Linux 6, Python 3.11.7" in text


def test_days_and_machines_are_all_named(make_row):
    first = make_row()
    machine = first.machine.model_copy(update={"device": "Slide Rule"})
    later = make_row(recorded_at=first.recorded_at.replace(day=4), machine=machine)
    text = provenance([later, first])
    assert "2026-03-01 to 2026-03-04" in text
    assert "Slide Rule" in text
    assert "Abacus 5" in text


def test_one_of_anything_is_told_as_one(make_row):
    row = make_row()
    machine = row.machine.model_copy(update={"threads": 1, "cores": 1})
    text = provenance([row.model_copy(update={"machine": machine})])
    assert text.startswith("1 run, 2026-03-01, on Abacus 5 (1 core, 1 thread), Linux")


def test_section_may_have_a_name(make_row):
    assert section([make_row()], "short").startswith("### short: tiny/encoder\n")


def test_commands_make_the_same_runs(make_row):
    rows = [make_row("cb", "capsule", seed) for seed in range(3)]
    rows += [make_row("cb", "lora", seed, rates=(0.001, 0.01)) for seed in range(3)]
    rows += [make_row("rte", "capsule"), make_row("snips", "capsule")]
    cb, rte, snips = (shlex.split(command) for command in commands(rows))
    assert cb[:2] == ["capsule", "reproduce"]
    options = dict(zip(cb[2:-2:2], cb[3:-2:2], strict=True))
    assert options == {
        "--suite": "superglue",
        "--tasks": "cb",
        "--methods": "capsule,lora",
        "--seeds": "3",
        "--data": "DATA",
        "--backbone": "embedded",
        "--epochs": "3",
        "--patience": "5",
        "--batch-size": "32",
        "--length": "1",
        "--layers": "all",
        "--max-length": "512",
        "--learning-rates": "0.02",
    }
    assert cb[-2:] == ["--learning-rates", "lora=0.001,0.01"]
    assert rte[2:8] == ["--suite", "superglue", "--tasks", "rte", "--methods", "capsule"]
    assert snips[3] == "single"


def test_sets_that_share_methods_and_seeds_share_a_command(make_row, configuration):
    settings = configuration.settings.model_copy(update={"layers": (1, 3)})
    changed = configuration.model_copy(update={"settings": settings})
    rows = [make_row(task, configuration=changed) for task in ("cb", "copa")]
    (command,) = commands(rows)
    assert "--tasks cb,copa " in command
    assert "--layers 1,3 " in command


def test_summary_answers_the_question_where_it_can(make_row):
    rows = [make_row(), make_row("cb", "task-only")]
    text = summary(rows, [SKIP])
    assert "The capsule minus task-only" in text
    assert "only one seed, which decides nothing, on cb" in text
    assert "| multirc | - | - | It is absent. |" in text
    alone = summary(rows[:1], [])
    assert "minus" not in alone
    assert "Left out" not in alone


def test_summary_of_no_run(make_row):
    assert "No run finished." in summary([], [SKIP])
