"""Backbones for the whole run."""

from pathlib import Path

import pytest

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.backbones.load import load
from tests.support.backbones import tiny_bert, tiny_family
from tests.support.families import FAMILIES, Subject


@pytest.fixture(scope="session")
def embedded() -> LoadedBackbone:
    """On the CPU in float32, as its capsules were trained."""
    return load("embedded", device="cpu", dtype="float32")


@pytest.fixture(scope="session", params=sorted(FAMILIES))
def subject(request: pytest.FixtureRequest) -> Subject:
    """A tiny backbone of every family with its reference, float64."""
    build = FAMILIES[request.param]
    return build()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny-bert")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LoadedBackbone:
    """A random BERT with its tokeniser, float32."""
    return tiny_bert(tiny_folder)


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    """A random T5 with its tokeniser, float32: it answers in words."""
    return tiny_family(tmp_path_factory.mktemp("tiny-t5"), "t5")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    """A random Llama with its tokeniser, float32: its heads have no bias."""
    return tiny_family(tmp_path_factory.mktemp("tiny-llama"), "llama")


@pytest.fixture(scope="session")
def info(tiny: LoadedBackbone) -> BackboneInfo:
    return tiny.info
