from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.api.models import service
from service.api.models.service import list_models
from service.errors import NotFound
from service.registry.registry import Registry


class Tasks:
    """A registry of tasks: those that vanish are listed but gone, `foreign` cannot be served, and
    all versions of `held` are.
    """

    def __init__(self, *names: str, vanished: str = "", foreign: str = "", held: str = "") -> None:
        self.names = names
        self.held = held
        self.vanished = vanished
        self.foreign = foreign

    async def list_tasks(self, after: str | None, limit: int) -> Any:
        later = [name for name in self.names if after is None or name > after]
        tasks = [SimpleNamespace(task=name) for name in later[:limit]]
        return SimpleNamespace(tasks=tasks, after=tasks[-1].task if len(later) > limit else None)

    async def describe(self, task: str) -> Any:
        if task == self.vanished:
            raise NotFound("Gone.", code="task_not_found")
        versions = [
            SimpleNamespace(
                version=number,
                servable=task != self.foreign,
                created_at=SimpleNamespace(timestamp=lambda: 1.5e9),
                source="zoo",
                digest="d" * 64,
            )
            for number in (1, 2)
        ]
        default = None if task == self.held else 2
        return SimpleNamespace(summary=SimpleNamespace(default_version=default), versions=versions)


async def test_all_pages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAGE", 2)
    models = await list_models(cast(Registry, Tasks("a", "b", "c", "d", "e")))
    assert [model.id for model in models] == ["a", "b", "c", "d", "e"]
    assert {(model.version, model.owned_by, model.created) for model in models} == {
        (2, "zoo", 1_500_000_000)
    }


async def test_what_cannot_be_called_is_left_out() -> None:
    tasks = Tasks("a", "b", "c", "d", vanished="a", foreign="b", held="d")
    assert [model.id for model in await list_models(cast(Registry, tasks))] == ["c"]
