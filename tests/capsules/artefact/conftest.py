import pytest

from capsules.artefact.file import Capsule, dump
from tests.support.capsules import random_capsule
from tests.support.files import INFO


@pytest.fixture
def capsule() -> Capsule:
    return random_capsule(INFO)


@pytest.fixture
def good(capsule: Capsule) -> bytes:
    """A file that is in order."""
    return dump(capsule)
