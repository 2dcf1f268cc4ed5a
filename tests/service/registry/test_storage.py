from collections.abc import Iterator

import pytest

from service.errors import (
    InternalError,
    NotFound,
    PreconditionFailed,
    ServiceError,
    Unavailable,
    Unprocessable,
)
from service.registry.lanes import Lane
from service.registry.storage import stored, to_service_error
from service.store import errors

SECRET = "disk /secret/path is full"

EXPECTED: dict[type[errors.StoreError], tuple[errors.StoreError, type[ServiceError], str]] = {
    errors.StoreError: (errors.StoreError(SECRET), InternalError, "store_failed"),
    errors.NotFound: (errors.NotFound("gone"), NotFound, "not_found"),
    errors.TaskNotFound: (errors.TaskNotFound("trec"), NotFound, "task_not_found"),
    errors.VersionNotFound: (errors.VersionNotFound("trec", 3), NotFound, "version_not_found"),
    errors.AliasNotFound: (errors.AliasNotFound("trec", "prod"), NotFound, "alias_not_found"),
    errors.DamagedRecord: (
        errors.DamagedRecord("trec", 3, ["manifest"]),
        InternalError,
        "artefact_damaged",
    ),
    errors.AliasConflict: (
        errors.AliasConflict("trec", "prod", expected=1, actual=2),
        PreconditionFailed,
        "alias_conflict",
    ),
    errors.InvalidValue: (errors.InvalidValue("too long"), Unprocessable, "invalid_value"),
    errors.StoreUnavailable: (errors.StoreUnavailable(SECRET), Unavailable, "store_unavailable"),
    # These arise when a store is opened or followed, which no client's request does.
    errors.ChangesUnavailable: (
        errors.ChangesUnavailable(1, oldest=3, head=4),
        InternalError,
        "store_failed",
    ),
    errors.UnsupportedUrl: (errors.UnsupportedUrl(SECRET), InternalError, "store_failed"),
    errors.SchemaTooNew: (errors.SchemaTooNew("2", "1"), InternalError, "store_failed"),
}


def family(root: type[errors.StoreError]) -> Iterator[type[errors.StoreError]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


def test_no_error_of_the_store_is_forgotten() -> None:
    assert set(family(errors.StoreError)) == EXPECTED.keys()


@pytest.mark.parametrize("raised", EXPECTED, ids=lambda kind: kind.__name__)
async def test_translates(raised: type[errors.StoreError]) -> None:
    error, kind, code = EXPECTED[raised]

    def call() -> None:
        raise error

    with pytest.raises(ServiceError) as translated:
        await stored(Lane("test", 1), None, call)
    assert type(translated.value) is kind
    assert translated.value.code == code
    assert translated.value.__cause__ is error
    assert SECRET not in translated.value.detail


def test_a_store_out_of_reach_says_when_to_retry() -> None:
    assert to_service_error(errors.StoreUnavailable("locked")).retry_after


@pytest.mark.parametrize(("actual", "words"), [(2, "is at revision 2"), (0, "is not set")])
def test_a_conflict_says_what_is(actual: int, words: str) -> None:
    error = to_service_error(errors.AliasConflict("t", "prod", expected=1, actual=actual))
    assert words in error.detail


async def test_passes_arguments_and_result() -> None:
    assert await stored(Lane("test", 1), None, divmod, 7, 3) == (2, 1)
