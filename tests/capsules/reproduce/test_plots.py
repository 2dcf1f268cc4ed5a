import matplotlib.image as images
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from capsules.reproduce.method import METHODS
from capsules.reproduce.plots import draw, marker, parameters, places, time
from capsules.reproduce.summary import cells


@pytest.fixture
def found(make_row):
    rows = [
        make_row(task, method, seed, 0.7 + seed / 10)
        for task in ("cb", "copa", "rte", "trec")
        for method in ("capsule", "lora")
        for seed in (0, 1)
    ]
    return cells([*rows, make_row("cb", "linear-head")])


def test_pictures_are_written(make_row, tmp_path):
    written = draw(cells([make_row()]), tmp_path / "new", prefix="results-")
    assert [path.name for path in written] == ["results-parameters.png", "results-time.png"]
    for path in written:
        height, width, _ = images.imread(path).shape
        assert width > height / 2 > 100


def test_same_cells_give_the_same_pictures(make_row, tmp_path):
    one, two = (draw(cells([make_row()]), tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_parameters_have_a_panel_a_set_and_a_legend_of_all_methods(found):
    figure = parameters(found)
    visible = [axes.get_title() for axes in figure.axes if axes.get_visible()]
    assert visible == ["cb", "copa", "rte", "trec"]
    assert figure.axes[0].get_xscale() == "log"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["capsule", "linear-head", "lora"]


def test_methods_of_equal_parameters_do_not_hide_each_other(make_row):
    names = ("capsule", "task-only", "lora")
    cells_ = cells([make_row("cb", name) for name in names])
    capsule, task_only, lora = places(cells_)
    assert capsule < 3_000 < task_only
    assert capsule * task_only == pytest.approx(3_000**2)
    assert lora == 60_000
    lines = parameters(cells_).axes[0].lines
    dots = {str(line.get_marker()): np.asarray(line.get_xdata()).tolist() for line in lines}
    assert [dots[marker(name)] for name in names] == [[capsule], [task_only], [lora]]


def test_every_method_has_a_marker_of_its_own():
    assert len({marker(name) for name in METHODS}) == len(METHODS)


def test_time_has_a_bar_a_method(found):
    axes = time(found).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "capsule",
        "linear-head",
        "lora",
    ]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert {bar.get_width() for bar in bars} == {6.0}
