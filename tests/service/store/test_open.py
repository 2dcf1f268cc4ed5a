from contextlib import closing
from pathlib import Path

import pytest

from service.store import open_store
from service.store.errors import UnsupportedUrl
from service.store.open import DATABASE_NAME
from tests.service.store.samples import add


def test_data_directory_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data with ? and #"
    for location in (folder, str(folder)):
        with closing(open_store(location)) as store:
            add(store)
    assert (folder / DATABASE_NAME).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]


def test_sqlite_url_names_the_file(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/sub/own.db")) as store:
        add(store)
    assert (tmp_path / "sub" / "own.db").is_file()


def test_relative_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store("sqlite:///own.db")) as store:
        add(store)
    assert (tmp_path / "own.db").is_file()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:secret@host/database",
        "https://user:secret@host/",
        "nonsense://",
        "://",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://user:secret@host/file.db",
        "sqlite:///file.db?mode=ro",
    ],
)
def test_unsupported_url(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedUrl, match="store URL") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
