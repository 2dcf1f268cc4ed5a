import pytest
from typer.testing import CliRunner

from service.cli import app
from tests.support.commands import invoke


def completions(words: str, url: str) -> list[str]:
    """What bash is told to complete."""
    environment = {
        "CAPSULE_URL": url,
        "_CAPSULE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    result = CliRunner(env=environment).invoke(app, [], prog_name="capsule")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.split()


def test_task_names_come_from_the_server(url, file):
    invoke("push", file, "--url", url)
    assert completions("capsule classify t", url) == ["trec"]
    assert completions("capsule rm ", url) == ["new", "trec"]
    assert completions("capsule list ne", url) == ["new"]
    assert completions(f"capsule list --url {url} ne", "http://127.0.0.1:9") == ["new"]


def test_commands_and_options_are_completed(nowhere):
    assert completions("capsule cl", nowhere) == ["classify"]
    assert completions("capsule train --val", nowhere) == ["--validation", "--validation-fraction"]


@pytest.mark.parametrize("url", [None, "no url"])
def test_without_a_server_no_task_is_completed(url, nowhere):
    assert completions("capsule classify t", url or nowhere) == []
