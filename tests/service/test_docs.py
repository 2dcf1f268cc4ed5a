"""The documentation names everything that operators and clients can meet."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from capsules.errors import ArtefactFault, DataFault, InputFault
from service.app import create_app
from service.metrics import Metrics
from service.settings import Settings
from tests.support.edge import settings_for

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()

# Never sent over HTTP: failures of the start, and of the command line's own client.
SILENT = {"cannot_listen", "not_found", "workflows_unavailable"}

# Never sent either: of a command that compares two files.
LIBRARY = {DataFault.LENGTH_MISMATCH}


def codes_in_source() -> set[str]:
    files = [
        file
        for file in (ROOT / "service").rglob("*.py")
        if "cli" not in file.relative_to(ROOT).parts and "store" not in file.parts
    ]
    text = "".join(file.read_text() for file in files)
    return set(re.findall(r'code="([a-z_]+)"', text)) - SILENT


@pytest.mark.parametrize(
    "code",
    sorted(
        codes_in_source()
        | {str(fault) for fault in (*ArtefactFault, *InputFault, *DataFault)} - LIBRARY
        | {"draining", "missing_field", "unknown_field", "conflicting_fields", "no_text"}
        | {"timeout_too_long", "path_not_found", "method_not_allowed", "invalid_request"}
        | {"too_many_values", "too_many_labels", "validation_leaks", "test_leaks", "disk_failed"}
        | {"invalid_option", "repeated_field"}
    ),
)
def test_every_code_is_documented(code: str) -> None:
    assert f"`{code}`" in API


def test_every_route_is_documented(tmp_path: Path) -> None:
    for path in create_app(settings_for(tmp_path)).openapi()["paths"]:
        assert path in API + "/readyz /metrics", path


def test_every_documented_status_is_in_the_table(tmp_path: Path) -> None:
    document = create_app(settings_for(tmp_path)).openapi()
    statuses = {
        status
        for methods in document["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
        if status >= "400"
    }
    assert statuses <= set(re.findall(r"^\| (\d{3}) \|", API, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name: str) -> None:
    assert f"| `CAPSULE_{name.upper()}` |" in OPERATIONS


def test_every_metric_is_documented() -> None:
    for family in text_string_to_metric_families(Metrics(tasks=1).exposition().decode()):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` |" in OPERATIONS, name


def headings(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    return {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", ["api.md", "operations.md"])
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT / "docs" / page
    for target in re.findall(r"\]\(([^)]+)\)", here.read_text()):
        name, _, heading = target.partition("#")
        there = here.parent / name if name else here
        assert there.is_file(), target
        assert not heading or heading in headings(there), target
