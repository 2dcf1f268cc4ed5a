"""Lists what can be called."""

from service.api.models.schemas import Model
from service.errors import NotFound
from service.registry.registry import Registry

PAGE = 1000


async def list_models(registry: Registry) -> list[Model]:
    """Every task whose bare name can be classified with.

    Clients send what is listed here back as a name, so a task all of whose versions are held is
    not.
    """
    models: list[Model] = []
    after: str | None = None
    while True:
        page = await registry.list_tasks(after, PAGE)
        for summary in page.tasks:
            model = await describe(registry, summary.task)
            if model is not None:
                models.append(model)
        if page.after is None:
            return models
        after = page.after


async def describe(registry: Registry, task: str) -> Model | None:
    """A task as a model; None where it cannot be called, or has just been deleted."""
    try:
        detail = await registry.describe(task)
    except NotFound:
        return None
    number = detail.summary.default_version
    default = next((version for version in detail.versions if version.version == number), None)
    if default is None or not default.servable:
        return None
    return Model(
        id=task,
        created=int(default.created_at.timestamp()),
        owned_by=default.source,
        version=default.version,
        digest=default.digest,
    )
