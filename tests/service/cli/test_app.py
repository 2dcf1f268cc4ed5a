import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer
from typer.core import TyperGroup

from service import server
from service.cli import app
from service.settings import PREFIX, Settings
from tests.support.commands import ROOT, invoke
from tests.support.toy_rows import toy_file

COMMANDS = {
    *("serve", "train", "evaluate", "inspect", "reproduce", "push", "list", "classify", "rm"),
    *("jobs", "worker"),
}
JOBS = {"submit", "list", "show", "watch", "cancel", "resume", "rm"}
HEAVY = {"torch", "transformers", "sklearn", "uvicorn", "fastapi", "pydantic", "httpx2", "numpy"}


def commands():
    """The commands with their parameters."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands


def test_help_names_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"│ {command}\b", result.stdout), command


def test_help_imports_nothing_heavy():
    """Which is what keeps it quick, on however slow a machine."""
    code = (
        "import sys; from typer.testing import CliRunner; from service.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command", [["classify", "trec", "x"], ["jobs", "submit", "--task", "toy", "--train"]]
)
def test_talking_to_a_server_imports_no_model(command, url, tmp_path):
    rows = [str(toy_file(tmp_path))] if command[-1] == "--train" else []
    code = (
        "import sys; from typer.testing import CliRunner; from service.cli import app; "
        f"result = CliRunner().invoke(app, {[*command, *rows, '--url', url]!r}); "
        "assert result.exit_code == 0, result.output; "
        f"print(sorted({HEAVY - {'pydantic', 'httpx2'}!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_arguments_show_the_help():
    result = invoke()
    assert (result.exit_code, "Usage:" in result.output) == (2, True)


def test_the_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"capsule {version('capsule-server')}\n")


@pytest.mark.parametrize(
    "arguments", [["fly"], ["--fly"], ["push"], ["classify"], ["rm"], ["train"]]
)
def test_wrong_usage(arguments):
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_serve_passes_flags_and_environment_on(monkeypatch, tmp_path):
    served: list[Settings] = []

    def serve(settings: Settings) -> int:
        served.append(settings)
        return 1

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setenv("CAPSULE_PORT", "1111")
    monkeypatch.setenv("CAPSULE_MAX_TEXTS", "7")
    flags = ["--port", "2222", "--data-dir", str(tmp_path), "--no-load-zoo", "--log-level", "debug"]
    flags += ["--executor", "onnxruntime", "--quantization", "int8"]
    assert invoke("serve", *flags).exit_code == 1
    (settings,) = served
    assert settings == Settings(
        port=2222,
        data_dir=tmp_path,
        load_zoo=False,
        log_level="DEBUG",
        max_texts=7,
        executor="onnxruntime",
        quantization="int8",
    )


def test_serve_tells_all_bad_settings_together(monkeypatch):
    monkeypatch.setenv("CAPSULE_MAX_TEXTS", "many")
    result = invoke("serve", "--port", "99999", "--device", "tpu")
    assert (result.exit_code, result.stdout) == (2, "")
    told = result.stderr.splitlines()
    assert len(told) == 3
    for name in ("--port is '99999'", "--device is 'tpu'", "CAPSULE_MAX_TEXTS is 'many'"):
        assert any(line.startswith(f"error [invalid_setting]: {name}") for line in told)


def test_serve_describes_its_flags_as_the_settings_do():
    flags = {one.name: one for one in commands()["serve"].params}
    assert {"host", "port", "data_dir", "backbone", "device", "threads"} < set(flags)
    for name, flag in flags.items():
        description = Settings.model_fields[name].description
        assert flag.help == f"{description} [dim]env: {PREFIX}{name.upper()}[/dim]"


def test_every_command_and_option_is_documented():
    text = (ROOT / "docs" / "cli.md").read_text()
    pattern = r"^#{2,3} `capsule ([\w ]+)`\n(.*?)(?=^#{2,3} |\Z)"
    sections = dict(re.findall(pattern, text, re.M | re.S))
    known = commands()
    jobs = known["jobs"]
    assert isinstance(jobs, TyperGroup)
    assert (set(known), set(jobs.commands)) == (COMMANDS, JOBS)
    known |= {f"jobs {name}": command for name, command in jobs.commands.items()}
    assert set(sections) == set(known)
    common = text.partition("## `capsule")[0]
    for name, command in known.items():
        params = [one for one in command.params if not getattr(one, "hidden", False)]
        options = {option for one in params for option in one.opts if option[:2] == "--"}
        documented = set(re.findall(r"`(--[a-z-]+)", sections[name] + common))
        assert options - {"--help"} <= documented, name
        assert set(re.findall(r"`(--[a-z-]+)", sections[name])) <= {
            option for one in command.params for option in (*one.opts, *one.secondary_opts)
        }, name
