import pytest

from capsules.errors import OptionError, TrainingError
from capsules.reproduce.journal import Journal
from capsules.reproduce.method import choose
from capsules.reproduce.registry import draw, require


def absent(name):
    return None


def test_nothing_is_needed_for_capsules_alone():
    require(choose(["capsule", "linear-head"]), plots=False, present=absent)


def test_missing_library_of_baselines_is_told_with_the_way_out():
    with pytest.raises(OptionError, match=r"lora need the library peft: pip .*--methods"):
        require(choose(["capsule", "lora"]), plots=False, present=absent)


def test_missing_library_of_plots_is_told_with_the_way_out():
    with pytest.raises(OptionError, match=r"matplotlib: pip install .*--no-plots"):
        require(choose(["capsule"]), plots=True, present=absent)


def test_installed_libraries_are_found():
    require(choose([]), plots=True)


def test_plots_are_drawn(make_row, tmp_path, configuration, tiny):
    journal = Journal(tmp_path, configuration)
    journal.add(make_row())
    draw([], tiny, journal)
    assert {path.name for path in tmp_path.glob("*.png")} == {"parameters.png", "time.png"}


def test_plots_that_cannot_be_written_are_told(make_row, tmp_path, configuration, tiny):
    journal = Journal(tmp_path, configuration)
    journal.add(make_row())
    (tmp_path / "parameters.png").mkdir()
    with pytest.raises(TrainingError, match="cannot be written to"):
        draw([], tiny, journal)
