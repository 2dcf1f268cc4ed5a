"""The habits of the project that no linter holds."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = (".ci", "benchmarks", "capsules", "docs", "examples", "service", "tests")
# Joined here, so that this file does not name them either.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("npmjs", "org"),
        ("deb", "debian", "org"),
    )
]


def constraints() -> dict[str, str]:
    """The pinned version of each distribution, by its normalised name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that the project wrote."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*ROOT.iterdir(), *inside]:
        if path.is_file() and path.suffix not in {".gz", ".png", ".pyc", ".safetensors"}:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")


def test_constraints_are_bare_exact_pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pin = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")
    assert [line for line in lines if not line.startswith("#") and not pin.fullmatch(line)] == []


def test_torch_is_the_release_that_the_results_were_measured_with():
    assert constraints()["torch"] == "2.13.0"


@pytest.mark.parametrize(
    "requirement", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
)
def test_every_dependency_is_pinned_within_its_bounds(requirement):
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(constraints()[canonicalize_name(wanted.name)])


def test_no_file_names_a_package_host():
    """Where packages come from is the user's own setting."""
    assert [(str(path), host) for path, text in texts() for host in HOSTS if host in text] == []


def test_image_is_labelled_with_the_version():
    label = re.search(r'image\.version="([^"]+)"', (ROOT / "Dockerfile").read_text())
    assert label is not None
    assert label[1] == PROJECT["version"]


def test_each_reply_of_the_tour_ends_its_line():
    """A reply has no line end of its own, and the next one would be glued to it."""
    readme = (ROOT / "README.md").read_text()
    (tour,) = re.findall(r"^```sh\n(# Classify\..*?)^```", readme, re.MULTILINE | re.DOTALL)
    commands = re.split(r"^(?=curl |\S*capsule |# )", tour, flags=re.MULTILINE)
    calls = [command.strip() for command in commands if command.startswith("curl ")]
    assert len(calls) >= 10
    assert [call for call in calls if not call.endswith("; echo")] == []


def test_what_training_leaves_in_the_root_is_ignored():
    names = ["tickets.safetensors", "tickets.checkpoint"]
    done = subprocess.run(
        ["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 128:
        pytest.skip("this is no git checkout")
    assert done.stdout.split() == names


def test_documented_verbs_exist():
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".ci/run"]
    documents += (ROOT / "docs").rglob("*.md")
    for document in documents:
        # In code alone: prose may make many things.
        named = re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(), re.MULTILINE)
        assert set(named) <= verbs, document
