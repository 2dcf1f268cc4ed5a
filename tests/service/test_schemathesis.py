"""Random requests made from the OpenAPI document; every reply must be one that it promises."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import positive_data_acceptance

from service.app import create_app
from tests.support.edge import EdgeEngine, an_artefact, serving, settings_for, with_engine

EXAMPLES = 25

# Whether these are accepted depends on more than a schema can tell: a task's inputs, a file's
# content, an alias's revision.
UNDECIDED = (
    "POST /v1/classify",
    "POST /v1/capsules",
    "POST /v1/admin/training/jobs",
    "PUT /v1/capsules/{task}/aliases/{alias}",
    "DELETE /v1/capsules/{task}/aliases/{alias}",
)

# The document is that of an app that is never started.
schema = schemathesis.openapi.from_dict(create_app(settings_for(Path("unused"))).openapi())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    artefacts = [
        an_artefact("trec", labels=("no", "yes")),
        an_artefact("trec", labels=("no", "yes"), seed=1),
        an_artefact("nli", template="{premise} [and] {hypothesis}"),
    ]
    build = with_engine(EdgeEngine(), artefacts)
    with serving(create_app(settings_for(tmp_path_factory.mktemp("api")), build=build)) as url:
        yield url


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_reply_is_as_documented(case: schemathesis.Case[Any], url: str) -> None:
    excluded = [positive_data_acceptance] if case.operation.label in UNDECIDED else []
    case.call_and_validate(base_url=url, excluded_checks=excluded)
