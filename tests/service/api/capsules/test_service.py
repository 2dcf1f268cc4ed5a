from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.api.capsules.service import expected_revision, tags, unchanged, well_formed
from service.errors import BadRequest, PreconditionFailed
from service.registry.registry import Registry

DIGEST = "d" * 64


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('"3"', [(False, "3")]),
        ('W/"3"', [(True, "3")]),
        (' "3" , W/"4"', [(False, "3"), (True, "4")]),
        ('""', [(False, "")]),
        ("3", []),
        ('"3', []),
        ("", []),
    ],
)
def test_entity_tags_are_read(header: str, found: list[tuple[bool, str]]) -> None:
    assert tags(header) == found


@pytest.mark.parametrize(
    ("header", "same"),
    [
        (None, False),
        ("*", True),
        (f'"{DIGEST}"', True),
        (f'W/"{DIGEST}"', True),
        (f'"other", "{DIGEST}"', True),
        ('"other"', False),
        (DIGEST, False),
        ("", False),
    ],
)
def test_a_client_that_has_the_file_is_known_by_its_tag(header: str | None, same: bool) -> None:
    assert unchanged(header, DIGEST) is same


def registry_with(**revisions: int) -> Registry:
    """A registry that knows these aliases of any task."""
    aliases = tuple(SimpleNamespace(alias=a, revision=r) for a, r in revisions.items())

    async def describe(task: str) -> Any:
        return SimpleNamespace(summary=SimpleNamespace(aliases=aliases))

    return cast(Registry, SimpleNamespace(describe=describe))


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "revision"),
    [
        (None, None, None),
        ('"7"', None, 7),
        ('"6", "7"', None, 7),
        ("*", None, 7),
        (None, "*", 0),
        (None, " * ", 0),
    ],
)
async def test_the_revision_a_change_hangs_on(
    if_match: str | None, if_none_match: str | None, revision: int | None
) -> None:
    found = await expected_revision(registry_with(prod=7), "t", "prod", if_match, if_none_match)
    assert found == revision


@pytest.mark.parametrize(
    ("alias", "if_match"),
    [("prod", '"6"'), ("prod", 'W/"7"'), ("prod", "7"), ("prod", ""), ("canary", "*")],
)
async def test_a_revision_that_is_not_the_present_one_fails(alias: str, if_match: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        await expected_revision(registry_with(prod=7), "t", alias, if_match, None)
    assert (caught.value.code, caught.value.field) == ("alias_conflict", "If-Match")


async def test_only_a_star_is_read_of_if_none_match() -> None:
    with pytest.raises(BadRequest) as caught:
        await expected_revision(registry_with(), "t", "prod", None, '"7"')
    assert caught.value.field == "If-None-Match"


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ({"task": "a", "labels": ["é", "😀"]}, {"task": "a", "labels": ["é", "😀"]}),
        ({"seed": 2**70}, {"seed": 2**70}),
        ({"a": {"b": ["\ud800x"]}}, {"a": {"b": ["?x"]}}),
        ({"a\udc00": 1}, {"a?": 1}),
    ],
)
def test_a_manifest_is_told_as_it_is_unless_it_cannot_be(
    manifest: dict[str, Any], told: dict[str, Any]
) -> None:
    assert well_formed(manifest) == told
