"""What `capsule list` says of versions that are held."""

from rich.console import Console
from rich.table import Table

from service.cli.listing import task_row, tasks_table, version_rows, versions_table
from service.cli.replies import Task, TaskDetail


def a_version(version, **changes):
    return {
        "version": version,
        "digest": f"{version}" * 64,
        "created_at": "2026-01-01T00:00:00Z",
        "bytes": 10,
        "source": "training",
        "num_classes": 2,
        "servable": True,
        "held": False,
        **changes,
    }


def a_task(version, *versions, aliases=()):
    told = {"task": "trec", "version": version, "versions": versions, "aliases": list(aliases)}
    return TaskDetail.model_validate(told)


def listed(version, servable=True):
    return Task.model_validate(
        {
            "task": "trec",
            "version": version,
            "versions": 2,
            "num_classes": 2,
            "servable": servable,
            "updated_at": "2026-01-01T00:00:00Z",
        }
    )


def shown(table: Table) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_a_held_version_is_named_so():
    task = a_task(1, a_version(1), a_version(2, held=True))
    assert [row[1:4] for row in version_rows(task)] == [("default", 2, "served"), ("", 2, "held")]
    table = shown(versions_table(task))
    assert "2 held" in table
    assert "trec is version 1" in table


def test_a_held_version_that_prod_points_at_is_served():
    task = a_task(2, a_version(1), a_version(2, held=True))
    assert [row[1:4] for row in version_rows(task)] == [("", 2, "served"), ("default", 2, "served")]


def test_a_held_version_that_cannot_run_is_named_after_that():
    task = a_task(1, a_version(1), a_version(2, held=True, servable=False))
    assert version_rows(task)[1][3] == "unservable"


def test_a_server_that_knows_of_no_held_versions_has_none():
    version = a_version(1)
    del version["held"]
    assert version_rows(a_task(1, version))[0][3] == "served"


def test_a_task_whose_versions_are_all_held_has_no_default():
    task = listed(None, servable=False)
    assert task_row(task)[1:5] == (None, 2, 2, "held")
    assert "held" in shown(tasks_table([task]))
    detail = a_task(None, a_version(1, held=True))
    assert version_rows(detail)[0][1:4] == ("", 2, "held")
    assert "every version of trec is held" in shown(versions_table(detail))


def test_states_of_tasks():
    assert task_row(listed(2))[4] == "served"
    assert task_row(listed(2, servable=False))[4] == "unservable"
