import torch

from capsules.reproduce import machine
from capsules.reproduce.machine import describe, installed, peak_memory_mib, processor, watch_memory

CPU = torch.device("cpu")


def test_machine_is_described():
    found = describe(CPU)
    assert found.device
    assert found.cores >= 1
    assert found.threads == torch.get_num_threads()
    assert {"torch", "transformers"} <= found.packages.keys()


def test_processor_is_named_from_what_the_system_tells(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: Abacus 5\n")
    assert processor(path) == "Abacus 5"
    path.write_text("processor\t: 0\n")
    assert processor(path) == processor(tmp_path / "absent") != ""


def test_packages_that_are_missing_are_left_out(monkeypatch):
    monkeypatch.setattr(machine, "PACKAGES", ("torch", "no-such-package"))
    assert list(installed()) == ["torch"]


def test_memory_is_that_of_the_process():
    watch_memory(CPU)
    before = peak_memory_mib(CPU)
    held = torch.ones(64, 1024, 1024, dtype=torch.uint8)
    assert peak_memory_mib(CPU) >= before
    # An interpreter with torch takes more than this, and a test machine has less than that.
    assert 50 < peak_memory_mib(CPU) < 1_000_000
    assert held.any()
