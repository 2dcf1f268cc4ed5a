import pytest

from capsules.cli.failure import UsageError
from capsules.errors import OptionError
from service.cli.jobs.spec import spec_from


def test_only_what_was_given_is_sent():
    options = {"task": "tickets", "epochs": None, "seed": 0, "activate": False, "description": ""}
    assert spec_from(options) == {
        "task": "tickets",
        "seed": 0,
        "activate": False,
        "description": "",
    }


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("layers", "first-half", "first-half"),
        ("layers", "1,3", [1, 3]),
        ("layers", "1,x", [1, "x"]),
        ("labels", "spam,ham", ["spam", "ham"]),
        ("labels", 'spam,"no, thanks", space', ["spam", "no, thanks", " space"]),
        ("verbalizers", ["pos=good", "a=b=bad"], {"pos": "good", "a=b": "bad"}),
        (
            "metadata",
            ["team=support", "note=a=b", "empty="],
            {"team": "support", "note": "a=b", "empty": ""},
        ),
        ("max_bad_rows", "5", 5),
        ("max_bad_rows", "0.02", 0.02),
        ("max_bad_rows", "1.0", 1.0),
    ],
)
def test_what_a_text_means(name, text, meant):
    (value,) = spec_from({name: text}).values()
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("labels", 'spam,"ham', "--labels"),
        ("labels", "spam\nham", "--labels"),
        ("verbalizers", ["good"], "--word"),
        ("verbalizers", ["pos="], "--word"),
        ("metadata", ["team"], "--metadata"),
        ("metadata", ["=x"], "--metadata"),
        ("metadata", ["a=1", "a=2"], "--metadata"),
        ("max_bad_rows", "some", "--max-bad-rows"),
        ("max_bad_rows", "-1", "--max-bad-rows"),
    ],
)
def test_what_means_nothing_is_told_by_its_option(name, text, told):
    with pytest.raises(UsageError, match=told):
        spec_from({name: text})


def test_a_fraction_of_more_than_all_rows_is_refused():
    with pytest.raises(OptionError, match="max_bad_rows"):
        spec_from({"max_bad_rows": "1.5"})
