"""The page of the API needs no other host than the server."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from service.api.docs.endpoints import POLICY
from tests.support.edge import a_problem


class Addresses(HTMLParser):
    """What a page loads: the addresses in its tags, and those that its script is given."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = re.findall(r"\burl: '([^']+)'", page)
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]


@pytest.fixture
def page(client: TestClient) -> str:
    response = client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return response.text


def test_all_that_the_page_loads_is_served_here(client: TestClient, page: str) -> None:
    loaded = [one for one in Addresses(page).found if not one.startswith("data:")]
    assert loaded == ["openapi.json", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js"]
    types = {}
    for address in loaded:
        response = client.get(urljoin("/docs", address))
        assert response.status_code == 200
        assert len(response.content) > 10_000
        types[address] = response.headers["content-type"].partition(";")[0]
    assert types == {
        "openapi.json": "application/json",
        "docs/swagger-ui.css": "text/css",
        "docs/swagger-ui-bundle.js": "text/javascript",
    }


def test_addresses_hold_behind_a_proxy_that_adds_a_path(page: str) -> None:
    where = "https://example.org/team/docs"
    for address in Addresses(page).found:
        assert urljoin(where, address).startswith(("https://example.org/team/", "data:"))


def test_the_page_asks_no_other_host(client: TestClient, page: str) -> None:
    named = re.findall(r"""["'](?:https?:)?//[^"']*""", page)
    assert [one for one in named if "www.w3.org" not in one] == [], "a name space is not loaded"
    assert json.loads(re.search(r'"validatorUrl": (\w+)', page)[1]) is None  # type: ignore[index]
    css = client.get("/docs/swagger-ui.css").text
    assert [url for url in re.findall(r"url\(['\"]?([^)]{5})", css) if url != "data:"] == []
    assert "@import" not in css
    # And the browser lets it load nothing else.
    policy = client.get("/docs").headers["content-security-policy"]
    assert policy == POLICY
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    allowed = {source for sources in rules.values() for source in sources.split()}
    assert allowed == {"'none'", "'self'", "'unsafe-inline'", "data:"}


def test_files_are_kept_by_the_browser(client: TestClient) -> None:
    first = client.get("/docs/swagger-ui.css")
    assert first.headers["cache-control"] == "max-age=86400"
    again = client.get("/docs/swagger-ui.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "..", "%2e%2e%2fcore.py", "%00"])
def test_nothing_else_is_there(client: TestClient, name: str) -> None:
    a_problem(client.get(f"/docs/{name}"), 404, "path_not_found")


def test_pages_are_only_read(client: TestClient) -> None:
    response = client.post("/docs")
    a_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET"


def test_the_page_is_there_while_the_server_warms_up(client: TestClient) -> None:
    live = client.app.state.live  # type: ignore[attr-defined]
    live.phase = "warming"
    try:
        assert client.get("/docs").status_code == 200
        assert client.get("/docs/swagger-ui.css").status_code == 200
    finally:
        live.phase = "ready"
