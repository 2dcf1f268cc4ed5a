import pytest

from capsules.cli.data import (
    Reader,
    fields_of,
    limits_from,
    warn_of_contradictions,
    warn_of_overlap,
)
from capsules.cli.failure import UsageError
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.data.limits import Limits
from capsules.errors import OptionError
from tests.support.rows import as_jsonl


def dataset(*rows: tuple[str, str]) -> Dataset:
    return Dataset.of(Example({"text": text}, label) for text, label in rows)


@pytest.mark.parametrize(
    ("text", "limit"), [(None, None), ("0", 0), ("5", 5), ("0.02", 0.02), ("1.0", 1.0)]
)
def test_a_point_tells_a_fraction_from_a_count(text, limit):
    limits = limits_from(text)
    assert limits.max_bad_rows == limit
    assert type(limits.max_bad_rows) is type(limit)


@pytest.mark.parametrize("text", ["", "many", "-1", "1e3", "5%", "nan", "."])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(UsageError, match="--max-bad-rows"):
        limits_from(text)


def test_a_fraction_above_one_is_refused():
    with pytest.raises(OptionError, match="max_bad_rows"):
        limits_from("1.5")


def test_the_fields_are_those_of_the_template():
    assert fields_of("{premise} and {hypothesis}") == ("premise", "hypothesis")


@pytest.mark.parametrize("template", ["", "no field", "{", "{0}", "{a.b}", "{a!r}"])
def test_a_malformed_template_is_refused(template):
    with pytest.raises(UsageError) as caught:
        fields_of(template)
    assert caught.value.code == "invalid_template"


def test_bad_rows_are_told_by_their_line(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    rows: list[dict[str, object]] = [{"text": f"t{n}", "label": "a"} for n in range(20)]
    rows[3] = {"text": "", "label": "a"}
    rows[7] = {"text": "x"}
    file.write_bytes(as_jsonl(rows))
    read = Reader(("text",), "label", Limits()).read(file)
    assert len(read) == 18
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {file}: 2 rows left out:",
        "  line 4: field 'text' is empty",
        "  line 8: no label: field 'label' is missing",
    ]


def test_only_the_first_of_many_bad_rows_are_told(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"{\n" * 30 + as_jsonl([{"text": "x", "label": "a"}]))
    Reader(("text",), "label", Limits(max_bad_rows=30)).read(file)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 22
    assert told[-1] == "  and so on"


def test_nothing_is_said_of_clean_data(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(as_jsonl([{"text": "x", "label": "a"}]))
    clean = Reader(("text",), "label", Limits()).read(file)
    warn_of_contradictions(clean)
    warn_of_overlap(clean, dataset(("y", "a")), "test")
    assert capsys.readouterr().err == ""


def test_contradictions_and_overlaps_are_told(capsys):
    train = dataset(("x", "a"), ("x", "b"), ("y", "a"), ("y", "a"))
    warn_of_contradictions(train)
    warn_of_overlap(train, dataset(("x", "a"), ("z", "a")), "test")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: 1 text in the training rows under more than one label")
    assert second.startswith("warning: 1 of the 2 test rows occur among the training rows")
