import pytest

from capsules.core import Example
from capsules.data.base import RowProblem
from capsules.data.schema import RawRow, RowSchema
from capsules.errors import OptionError

SCHEMA = RowSchema(("premise", "hypothesis"), "label", ("yes", "no"))


def parse(**values: object) -> Example | RowProblem:
    good: dict[str, object] = {"premise": "p", "hypothesis": "h", "label": "yes"}
    return SCHEMA.parse(RawRow(9, good | values))


def test_a_good_row_keeps_only_its_fields_and_their_text():
    assert parse(premise="  p\r\n", extra=[1]) == Example(
        {"premise": "  p\r\n", "hypothesis": "h"}, "yes"
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"premise": None}, "field 'premise' is missing"),
        ({"hypothesis": ""}, "field 'hypothesis' is empty"),
        ({"hypothesis": " \t\n\u00a0"}, "field 'hypothesis' is empty"),
        ({"premise": 3}, "field 'premise' is a number, not a string"),
        ({"premise": True}, "field 'premise' is a boolean, not a string"),
        ({"premise": ["a"]}, "field 'premise' is an array, not a string"),
        ({"premise": {}}, "field 'premise' is an object, not a string"),
        ({"premise": "\udce9"}, "field 'premise' is not valid UTF-8"),
        ({"premise": "a" * 131_073}, "field 'premise' has 131,073 characters; at most 131,072"),
        ({"label": None}, "no label: field 'label' is missing"),
        ({"label": "  "}, "no label: field 'label' is empty"),
        ({"label": "\u200b"}, "no label: field 'label' is empty"),
        ({"label": 1.5}, "label 'label' is a number, not a string, integer or boolean"),
        ({"label": ["yes"]}, "label 'label' is an array, not a string, integer or boolean"),
        ({"label": "a" * 5000}, "label 'label' has 5,000 characters; at most 256"),
        ({"label": "\ud83d"}, "label 'label' is not valid UTF-8"),
        ({"label": "perhaps"}, "label 'perhaps' is not one of the 2 labels given"),
        ({"label": "Yes"}, "label 'Yes' is not one of the 2 labels given"),
    ],
)
def test_each_fault_has_its_reason(values, reason):
    assert parse(**values) == RowProblem(9, reason)


def test_absent_keys_are_missing():
    assert SCHEMA.parse(RawRow(2, {"label": "yes"})) == RowProblem(2, "field 'premise' is missing")
    assert SCHEMA.parse(RawRow(3, {"premise": "p"})) == RowProblem(
        3, "no label: field 'label' is missing"
    )


@pytest.mark.parametrize(
    ("value", "label"),
    [(0, "0"), (-12, "-12"), (True, "true"), (False, "false"), (" spam ", "spam"), ("é", "é")],
)
def test_labels_become_text(value, label):
    row = RawRow(1, {"text": "t", "label": value})
    assert RowSchema(("text",)).parse(row) == Example({"text": "t"}, label)


def test_equal_labels_share_one_string():
    schema = RowSchema(("text",))
    rows = [schema.parse(RawRow(i, {"text": "t", "label": f"a-{'b' * 9}"})) for i in (1, 2)]
    assert isinstance(rows[0], Example)
    assert isinstance(rows[1], Example)
    assert rows[0].label is rows[1].label


@pytest.mark.parametrize(
    ("fields", "label_field", "labels", "at_fault"),
    [
        ((), "label", None, "fields"),
        (("",), "label", None, "fields"),
        (("a", "b", "a"), "label", None, "fields"),
        (("a", "label"), "label", None, "label_field"),
        (("a",), "label", (), "labels"),
        (("a",), "label", ("x", "x"), "labels"),
        (("a",), "label", ("x", " y"), "labels"),
        (("a",), "label", ("x", "\u200b"), "labels"),
    ],
)
def test_unusable_schemas_are_refused_by_option(fields, label_field, labels, at_fault):
    with pytest.raises(OptionError) as caught:
        RowSchema(fields, label_field, labels)
    assert caught.value.field == at_fault
