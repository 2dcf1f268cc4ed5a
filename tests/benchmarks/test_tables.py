import io

import pytest
from rich.console import Console

from benchmarks.tables import plain, quantity, show


def shown(result):
    output = io.StringIO()
    show(result, Console(file=output, width=160))
    return output.getvalue()


def test_answers_and_medians_are_shown(result):
    text = shown(result)
    for detail in ("Is it slow?", "0.961", "at least 0.95", "met", "theirs", "Mind the gap."):
        assert detail in text
    assert "busy" not in text


def test_busy_machine_is_told(result):
    busy = result.machine.model_copy(update={"load_average": 7.0})
    assert "busy (load average 7.0" in shown(result.model_copy(update={"machine": busy}))


@pytest.mark.parametrize(
    ("value", "text"), [(0.9634, "0.963"), (12.34, "12.3"), (99.96, "100"), (12345.6, "12,346")]
)
def test_numbers_have_three_digits_or_reach_the_unit(value, text):
    assert plain(value) == text


def test_ratio_has_no_unit():
    assert quantity(0.5, "ratio") == "0.5"
    assert quantity(0.5, "ms") == "0.5 ms"
