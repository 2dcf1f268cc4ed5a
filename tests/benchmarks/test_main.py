import json

import pytest

from benchmarks import __main__ as command
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.report import BEGIN, DOCUMENT, END
from benchmarks.result import Findings, read_result


@pytest.fixture
def asked(monkeypatch):
    """The contexts that stand-ins for the benchmarks were asked with, by name."""
    asked = {}

    def stand_in(name):
        def measure(context):
            asked[name] = context
            return Findings(options={}, figures=(), series=())

        return Benchmark(name, "Why?", measure)

    monkeypatch.setattr(command, "benchmark", stand_in)
    return asked


def test_all_questions_are_answered_unless_some_are_named(asked, tmp_path):
    assert command.main(["--results", str(tmp_path)]) == 0
    assert list(asked) == list(BENCHMARKS)
    assert {path.stem for path in tmp_path.iterdir()} == set(BENCHMARKS)
    asked.clear()
    assert command.main(["http_overhead", "--results", str(tmp_path)]) == 0
    assert list(asked) == ["http_overhead"]


def test_options_reach_the_benchmark(asked, tmp_path):
    options = ["--quick", "--backbone", "b", "--device", "cpu", "--results", str(tmp_path)]
    command.main(["engine_overhead", *options])
    context = asked["engine_overhead"]
    assert (context.quick, context.backbone, context.device) == (True, "b", "cpu")
    assert read_result(tmp_path / "engine_overhead.json").question == "Why?"


def test_quick_results_stay_out_of_the_recorded_ones(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "recorded")
    monkeypatch.setattr(command, "QUICK_RESULTS", tmp_path / "quick")
    command.main(["engine_overhead", "--quick"])
    assert not (tmp_path / "recorded").exists()
    assert (tmp_path / "quick" / "engine_overhead.json").exists()
    command.main(["engine_overhead"])
    assert (tmp_path / "recorded" / "engine_overhead.json").exists()


def test_unknown_name_fails_before_anything_is_measured(capsys, tmp_path):
    assert command.main(["engine_overhead", "speed", "--results", str(tmp_path)]) == 1
    assert "no benchmark 'speed'" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_missing_data_fails(capsys, tmp_path):
    assert command.main(["--data", "nowhere", "--results", str(tmp_path)]) == 1
    assert "nowhere has no" in capsys.readouterr().out


def test_report_measures_nothing(asked, result, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    places = "".join(f"{BEGIN.format(name=name)}\n{END}\n" for name in BENCHMARKS)
    (tmp_path / "docs" / DOCUMENT).write_text(places)
    result.write(tmp_path)
    assert command.main(["--report", "--results", str(tmp_path)]) == 0
    assert asked == {}
    assert "0.961" in (tmp_path / "docs" / DOCUMENT).read_text()


def test_report_of_a_broken_result_fails(capsys, tmp_path):
    (tmp_path / "engine_overhead.json").write_text(json.dumps({}))
    assert command.main(["--report", "--results", str(tmp_path)]) == 1
    assert "is not a result" in capsys.readouterr().out
