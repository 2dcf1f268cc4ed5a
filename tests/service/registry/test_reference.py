import pytest
from hypothesis import given, strategies as st

from service.errors import Unprocessable
from service.registry.reference import Reference, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trec", Reference("trec")),
        ("0", Reference("0")),
        ("a.b_c-d", Reference("a.b_c-d")),
        ("a" * 63, Reference("a" * 63)),
        ("trec@1", Reference("trec", version=1)),
        ("trec@123456789012345678", Reference("trec", version=123456789012345678)),
        ("trec:prod", Reference("trec", alias="prod")),
        ("trec:2024-06", Reference("trec", alias="2024-06")),
    ],
)
def test_reads_every_form(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_task_name"),
        ("Trec", "invalid_task_name"),
        ("-trec", "invalid_task_name"),
        ("a/b", "invalid_task_name"),
        ("..", "invalid_task_name"),
        ("trec\n", "invalid_task_name"),
        ("trec ", "invalid_task_name"),
        ("trec\x00", "invalid_task_name"),
        ("🙂", "invalid_task_name"),
        ("\ud800", "invalid_task_name"),
        ("a" * 64, "invalid_task_name"),
        ("a" * 300, "invalid_task_name"),
        ("latest", "invalid_task_name"),
        ("latest@1", "invalid_task_name"),
        ("@1", "invalid_task_name"),
        (":prod", "invalid_task_name"),
        ("trec@", "invalid_version"),
        ("trec@0", "invalid_version"),
        ("trec@01", "invalid_version"),
        ("trec@-1", "invalid_version"),
        ("trec@1.0", "invalid_version"),
        ("trec@٣", "invalid_version"),
        ("trec@1\n", "invalid_version"),
        ("trec@prod", "invalid_version"),
        ("trec@1:prod", "invalid_version"),
        ("trec@" + "9" * 5000, "invalid_version"),
        ("trec:", "invalid_alias_name"),
        ("trec:Prod", "invalid_alias_name"),
        ("trec:a:b", "invalid_alias_name"),
        ("trec:prod@1", "invalid_alias_name"),
        ("trec:latest", "invalid_alias_name"),
        ("trec:" + "a" * 64, "invalid_alias_name"),
    ],
)
def test_refuses_everything_else(text: str, code: str) -> None:
    with pytest.raises(Unprocessable) as refused:
        parse_reference(text)
    assert refused.value.code == code
    assert refused.value.field == "task"
    assert len(refused.value.detail) < 300
    refused.value.detail.encode()


@given(st.text(max_size=80))
def test_accepts_or_refuses_any_text(text: str) -> None:
    try:
        reference = parse_reference(text)
    except Unprocessable:
        return
    suffix = (
        f"@{reference.version}"
        if reference.version is not None
        else f":{reference.alias}"
        if reference.alias is not None
        else ""
    )
    assert reference.task + suffix == text
