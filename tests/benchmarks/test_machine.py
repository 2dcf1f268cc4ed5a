import pytest

from benchmarks import machine as module
from benchmarks.machine import describe_machine, git
from capsules.reproduce.machine import processor


def test_this_machine_can_be_described():
    found = describe_machine()
    assert found.cpu
    assert found.usable_cores >= 1
    assert found.memory_gib > 0
    assert found.packages["torch"].startswith("2.")
    assert "transformers" in found.packages


def test_cpu_is_named_as_the_kernel_names_it(tmp_path):
    information = tmp_path / "cpuinfo"
    information.write_text("processor\t: 0\nmodel name\t: Abacus 5: fast\nmodel name\t: other\n")
    assert processor(information) == "Abacus 5: fast"


def test_cpu_has_a_name_where_the_kernel_tells_none(tmp_path):
    assert processor(tmp_path / "missing")


def test_git_has_nothing_to_say_outside_a_working_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git("rev-parse", "HEAD") is None


def test_git_may_not_be_installed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert git("rev-parse", "HEAD") is None


def test_thread_variables_are_told(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert describe_machine().thread_variables["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(("load", "busy"), [(0.0, False), (0.5, False), (0.6, True), (9.0, True)])
def test_machine_with_other_work_is_busy(machine, load, busy):
    assert machine.model_copy(update={"load_average": load}).busy is busy
