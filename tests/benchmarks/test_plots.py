from xml.etree import ElementTree

from benchmarks.plots import draw


def test_plot_names_cases_sides_and_units(result, tmp_path):
    path = tmp_path / "new" / "plot.svg"
    draw(result, path)
    texts = {element.text for element in ElementTree.parse(path).iter() if element.text}
    assert {"Is it slow?", "a | b", "c", "ours", "theirs", "ms", "requests/s"} <= texts


def test_same_result_gives_the_same_file(result, tmp_path):
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        draw(result, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
