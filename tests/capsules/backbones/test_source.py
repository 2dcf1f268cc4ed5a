"""Where a backbone comes from; a server on this machine stands for the hub."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from capsules.backbones import embedded
from capsules.backbones.source import BackboneSource, resolve
from capsules.errors import BackboneError, BackboneFault

HUB_ID = "google-t5/t5-base"


class Hub(ThreadingHTTPServer):
    """Answers everything with one status, in the hub's way of telling why."""

    status = 404
    reason: str | None = "RepoNotFound"
    daemon_threads = True


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        if self.server.reason is not None:
            self.send_header("X-Error-Code", self.server.reason)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return cache


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(specification: str) -> BackboneError:
    with pytest.raises(BackboneError) as refused:
        resolve(specification)
    assert refused.value.field == "backbone"
    return refused.value


def test_embedded_is_the_one_that_is_installed() -> None:
    source = resolve("embedded")
    assert source.id == embedded.BACKBONE_ID
    assert (source.folder / "model.safetensors").is_file()


def test_a_folder_is_named_after_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my" / "backbone"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for specification in (str(folder), f"{folder}/", "my/backbone", "./my/../my/backbone"):
        source = resolve(specification)
        assert (source.id, source.folder) == ("backbone", folder)
    assert resolve("~/my/backbone").folder == folder


def test_a_folder_without_a_configuration_is_no_backbone(tmp_path: Path) -> None:
    error = refusal(str(tmp_path))
    assert error.code == BackboneFault.NOT_FOUND
    assert "holds no config.json" in error.message


@pytest.mark.parametrize(
    "specification",
    [
        "nonesuch",
        "/nowhere/at/all",
        "./no/folder",
        "../no",
        "a/b/c",
        "a//b",
        "a b/c",
        "a\0b",
        "~nobody-of-that-name/backbone",
        "x" * 5000,
        "https://example.com/model",
    ],
    ids=lambda specification: specification[:30],
)
def test_what_means_nothing_is_refused_with_what_would_mean_something(specification: str) -> None:
    error = refusal(specification)
    assert error.code == BackboneFault.NOT_FOUND
    assert "give `embedded`, an existing folder or GGUF file, or a hub id" in error.message


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-q8.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_gguf_file_is_named_after_itself(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(gguf.parent)
    monkeypatch.setenv("HOME", str(gguf.parent))
    for specification in (str(gguf), "tiny-q8.gguf", "~/tiny-q8.gguf"):
        source = resolve(specification)
        assert source == BackboneSource("tiny-q8", gguf.parent, gguf="tiny-q8.gguf")
        assert source.place == gguf
        assert source.gguf_option == {"gguf_file": "tiny-q8.gguf"}


def test_a_link_to_a_gguf_file_is_followed_by_whoever_reads_it(gguf: Path, tmp_path: Path) -> None:
    """As the hub's cache has them."""
    link = tmp_path / "links" / "named.gguf"
    link.parent.mkdir()
    link.symlink_to(gguf.rename(tmp_path / "0123abcd"))
    source = resolve(str(link))
    assert (source.id, source.gguf) == ("named", "named.gguf")
    assert source.place.read_bytes() == b"GGUF"


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "saved.gguf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    source = resolve(str(folder))
    assert (source.folder, source.gguf, source.gguf_option) == (folder, None, {})
    assert source.place == folder


@pytest.mark.parametrize(
    "specification",
    [
        *("none.gguf", "/nowhere/at/all.gguf", "owner/name.gguf", "~nobody-of-that-name/x.gguf"),
        *("a\0b.gguf", "x" * 5000 + ".gguf"),
    ],
    ids=lambda specification: specification[:30],
)
def test_a_gguf_file_that_is_not_there(specification: str) -> None:
    error = refusal(specification)
    assert error.code == BackboneFault.NOT_FOUND
    assert f"There is no file {specification!r}" in error.message


def test_a_gguf_file_without_the_package_that_reads_it(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As the import system has it for what is known to be missing.
    monkeypatch.setitem(sys.modules, "gguf", None)
    error = refusal(str(gguf))
    assert error.code == BackboneFault.NOT_FOUND
    assert str(gguf) in error.message
    assert "pip install 'capsule-server[gguf]'" in error.message


@pytest.mark.parametrize("specification", ["-x/y", "a..b/c", "a--b/c"])
def test_what_cannot_be_a_hub_id_is_not_looked_up(specification: str) -> None:
    error = refusal(specification)
    assert error.code == BackboneFault.NOT_FOUND
    assert "Check the id" in error.message


def test_without_a_network_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens on the discard port.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    error = refusal(HUB_ID)
    assert error.code == BackboneFault.UNREACHABLE
    for part in (repr(HUB_ID), "hub cannot be reached", "CAPSULE_BACKBONE", "`embedded`"):
        assert part in error.message


def test_offline_mode_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert refusal(HUB_ID).code == BackboneFault.UNREACHABLE


def test_what_is_cached_needs_no_network(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    commit = "0" * 40
    cached = empty_cache / "models--google-t5--t5-base"
    (cached / "snapshots" / commit).mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    source = resolve(HUB_ID)
    assert (source.id, source.folder) == (HUB_ID, cached / "snapshots" / commit)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "RepoNotFound"), (401, "RepoNotFound"), (403, "GatedRepo")],
)
def test_a_hub_that_says_no(hub: Hub, status: int, reason: str) -> None:
    hub.status, hub.reason = status, reason
    error = refusal(HUB_ID)
    assert error.code == BackboneFault.NOT_FOUND
    assert f"({status} " in error.message
    assert "log in if it is private or gated" in error.message


@pytest.mark.parametrize("status", [500, 503, 200], ids=["error", "overload", "something else"])
def test_a_hub_that_does_not_work(hub: Hub, status: int) -> None:
    hub.status, hub.reason = status, None
    assert refusal(HUB_ID).code == BackboneFault.UNREACHABLE
