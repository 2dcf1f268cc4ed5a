"""The container files hold what they promise, as far as that shows without a container engine.

`support/compose_spec.json` is the Compose Specification's published JSON Schema (Apache-2.0).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pytest
import yaml
from jsonschema import Draft7Validator

from service.engine.executors import SHIPPED
from service.settings import unknown_variables

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "tests/support/compose_spec.json").read_text())
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
SERVERS = ("capsule-server", "capsule-server-gpu")


def instructions(keyword: str) -> list[str]:
    """Arguments of every such instruction of the Dockerfile, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return re.findall(rf"^{keyword} +(.+?) *$", joined, re.MULTILINE)


def test_compose_file_follows_the_published_schema():
    assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(COMPOSE)] == []


def test_schema_refuses_a_misspelt_key():
    services = {"capsule-server": {**SERVICES["capsule-server"], "readonly": True}}
    assert not Draft7Validator(SCHEMA).is_valid({**COMPOSE, "services": services})


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_locked_down(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "/tmp" in service["tmpfs"]


@pytest.mark.parametrize("name", SERVICES)
def test_service_keeps_its_data_in_a_named_volume(name):
    (volume,) = SERVICES[name]["volumes"]
    source, target = volume.split(":")
    assert source in COMPOSE["volumes"]
    assert [target] == instructions("VOLUME")


def test_servers_share_neither_port_nor_volume():
    for key in ("ports", "volumes"):
        values = [value for name in SERVERS for value in SERVICES[name][key]]
        assert len(values) == len(set(values))


def test_the_worker_trains_for_the_server_on_the_cpu_which_leaves_it_to_do_so():
    server, worker = SERVICES["capsule-server"], SERVICES["capsule-worker"]
    assert server["environment"]["CAPSULE_TRAIN"] == "false"
    assert "CAPSULE_TRAIN" not in SERVICES["capsule-server-gpu"]["environment"]
    assert worker["command"] == ["worker"]
    assert worker["volumes"] == server["volumes"]
    assert worker["image"] == server["image"]
    for setting in ("CAPSULE_BACKBONE", "CAPSULE_DEVICE"):
        assert worker["environment"][setting] == server["environment"][setting]
    # The image's health check asks for what only a server has.
    assert worker["healthcheck"] == {"disable": True}
    assert "ports" not in worker


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_set_up_by_settings_that_there_are(name):
    assert unknown_variables(SERVICES[name]["environment"]) == []


def test_only_the_gpu_service_waits_for_its_profile():
    assert {name: service.get("profiles") for name, service in SERVICES.items()} == {
        "capsule-server": None,
        "capsule-worker": None,
        "capsule-server-gpu": ["gpu"],
    }
    (device,) = SERVICES["capsule-server-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_build_arguments_are_the_dockerfile_s():
    declared = {argument.partition("=")[0] for argument in instructions("ARG")}
    for name in SERVERS:
        assert set(SERVICES[name]["build"]["args"]) <= declared


def test_the_image_is_built_with_whatever_torch_there_is_unless_told_otherwise():
    """Most indexes serve a CUDA build, which an insistence on a CPU build would refuse."""
    (dockerfile,) = (one for one in instructions("ARG") if one.startswith("TORCH_VARIANT"))
    makefile = (ROOT / "Makefile").read_text()
    assert dockerfile == "TORCH_VARIANT=auto"
    assert re.findall(r"^TORCH_VARIANT \?= (\w+)$", makefile, re.MULTILINE) == ["auto"]
    assert SERVICES["capsule-server"]["build"]["args"]["TORCH_VARIANT"] == "${TORCH_VARIANT:-auto}"


def test_the_graph_is_exported_to_where_every_start_looks():
    """The environment is copied whole, and a root file system that is read-only is no obstacle."""
    (start,) = (one for one in instructions("RUN") if "capsule serve" in one)
    place = str(PurePosixPath("/opt/capsule", *SHIPPED))
    assert f"CAPSULE_GRAPH_DIR={place} " in start
    assert "CAPSULE_EXECUTOR=onnxruntime " in start
    assert "--from=build /opt/capsule /opt/capsule" in instructions("COPY")


def test_image_does_not_run_as_root():
    (user,) = instructions("USER")
    assert user.split(":")[0] not in {"0", "root"}


def test_image_runs_the_server_without_a_shell():
    assert [json.loads(argument) for argument in instructions("ENTRYPOINT")] == [["capsule"]]
    assert [json.loads(argument) for argument in instructions("CMD")] == [["serve"]]


def test_build_context_holds_what_the_dockerfile_copies():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source
        for arguments in instructions("COPY")
        if not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    }
    assert copied == kept
    assert [name for name in copied if not (ROOT / name).exists()] == []


@contextmanager
def readiness(status: int) -> Iterator[int]:
    """A server whose `/readyz` answers with that status; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def probe(port: int) -> int:
    """Run the image's health check against a port of this machine; its exit status."""
    (arguments,) = instructions("HEALTHCHECK")
    python, *rest = json.loads(arguments.partition("CMD ")[2])
    assert python == "python"
    # A proxy must not come between the probe and its own container.
    environment = {**os.environ, "CAPSULE_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, *rest], env=environment, check=False, capture_output=True
    ).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_health_check_asks_for_readiness(status, healthy):
    with readiness(status) as port:
        assert (probe(port) == 0) is healthy


def test_health_check_fails_where_nothing_listens():
    with readiness(200) as port:
        pass
    assert probe(port) != 0
