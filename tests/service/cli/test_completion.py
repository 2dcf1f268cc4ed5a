import pytest

from tests.support.commands import completions, invoke


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
