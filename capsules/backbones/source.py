"""Finds the folder a backbone specification means: `embedded`, a local folder or a hub id."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from capsules.backbones import embedded
from capsules.errors import BackboneError, BackboneFault

GGUF_SUFFIX = ".gguf"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# Weights in other frameworks' formats are left on the hub.
WANTED_FILES = (
    *("config.json", "tokenizer*", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model", "*.safetensors", "*.safetensors.index.json"),
)


@dataclass(frozen=True, slots=True)
class BackboneSource:
    """A backbone's name and where its files are.

    Attributes:
        id: name for people.
        folder: holds its files.
        gguf: the name of the one file in `folder` that holds everything, where it is one of that
            format; else None.
    """

    id: str
    folder: Path
    gguf: str | None = None

    @property
    def place(self) -> Path:
        """The folder or file, for messages."""
        return self.folder / self.gguf if self.gguf else self.folder

    @property
    def gguf_option(self) -> dict[str, str]:
        """What transformers has to be told of it."""
        return {} if self.gguf is None else {"gguf_file": self.gguf}


def resolve(specification: str) -> BackboneSource:
    """Find, and download where needed, the files of a backbone.

    Args:
        specification: `embedded`, the path of a folder or of a GGUF file, or a hub id such as
            `google-t5/t5-base`. A path that exists wins over a hub id of the same spelling.

    Raises:
        BackboneError: it means nothing, or cannot be had.
    """
    if specification == "embedded":
        return BackboneSource(embedded.BACKBONE_ID, embedded.locate())
    path = existing(specification)
    if path is not None and path.is_dir():
        if not (path / "config.json").is_file():
            raise BackboneError(
                f"The folder {path} holds no config.json; point to a folder that "
                "save_pretrained wrote.",
                code=BackboneFault.NOT_FOUND,
            )
        return BackboneSource(path.resolve().name, path.resolve())
    if specification.endswith(GGUF_SUFFIX):
        return gguf_source(specification, path)
    if HUB_ID.fullmatch(specification) and not specification.startswith("."):
        return BackboneSource(specification, download(specification))
    raise BackboneError(
        f"There is no backbone {specification!r}: give `embedded`, an existing folder or GGUF "
        "file, or a hub id such as google-t5/t5-base.",
        code=BackboneFault.NOT_FOUND,
    )


def gguf_source(specification: str, path: Path | None) -> BackboneSource:
    """A backbone that is one GGUF file.

    Args:
        specification: as it was given.
        path: where it is, or None where it is not.

    Raises:
        BackboneError: there is no such file, or the package that reads it is not installed.
    """
    if path is None:
        raise BackboneError(
            f"There is no file {specification!r}; give the path of a GGUF file that is there.",
            code=BackboneFault.NOT_FOUND,
        )
    if find_spec("gguf") is None:
        raise BackboneError(
            f"Reading {path} needs the package gguf; install it with "
            "`pip install 'capsule-server[gguf]'`.",
            code=BackboneFault.NOT_FOUND,
        )
    return BackboneSource(path.stem, path.parent.resolve(), gguf=path.name)


def existing(specification: str) -> Path | None:
    """What is at that path on this machine, or None where nothing is."""
    try:
        path = Path(specification).expanduser()
        return path if path.exists() else None
    # A home that is not known, or a name that no file can have.
    except (OSError, RuntimeError):
        return None


def download(hub_id: str) -> Path:
    """The local folder of a hub snapshot, downloaded unless it is cached.

    Raises:
        BackboneError: the hub does not have it or cannot be reached.
    """
    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(WANTED_FILES)))
    except LocalEntryNotFoundError as error:
        raise unreachable(hub_id, error) from error
    except (HfHubHTTPError, HFValidationError) as error:
        raise BackboneError(
            f"The hub does not give out {hub_id!r} ({first_line(error)}). Check the id, or log in "
            "if it is private or gated.",
            code=BackboneFault.NOT_FOUND,
        ) from error
    # A ValueError is a reply that is no JSON: something else answers in the hub's place.
    except (OSError, ValueError) as error:
        raise unreachable(hub_id, error) from error


def unreachable(hub_id: str, error: Exception) -> BackboneError:
    """The error for a hub that cannot be reached, with what to do about it."""
    return BackboneError(
        f"The backbone {hub_id!r} is not in the local cache and the hub cannot be reached "
        f"({first_line(error)}). Connect to the network, or download it elsewhere, copy "
        "the folder here and give its path as --backbone or CAPSULE_BACKBONE; `embedded` needs no "
        "network.",
        code=BackboneFault.UNREACHABLE,
    )


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def corrupt(what: str, error: Exception) -> BackboneError:
    """The error for files that the libraries beneath cannot read, with what to do about it.

    Args:
        what: cannot be done, with which file or folder.
        error: as the libraries have it.
    """
    reason = str(error).strip().rstrip(".")
    return BackboneError(
        f"{what}: {reason}. It may be damaged or cut off: get it anew, or name another backbone "
        "with --backbone or CAPSULE_BACKBONE.",
        code=BackboneFault.CORRUPT,
    )
