"""Finds the folder a backbone specification means: `embedded`, a local folder or a hub id."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from capsules.backbones import embedded
from capsules.errors import BackboneError, BackboneFault

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# Weights in other frameworks' formats are left on the hub.
WANTED_FILES = (
    *("config.json", "tokenizer*", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model", "*.safetensors", "*.safetensors.index.json"),
)


@dataclass(frozen=True, slots=True)
class BackboneSource:
    """A backbone's name and the folder that holds its files."""

    id: str
    folder: Path


def resolve(specification: str) -> BackboneSource:
    """Find, and download where needed, the files of a backbone.

    Args:
        specification: `embedded`, the path of a folder, or a hub id such as
            `google-t5/t5-base`. A folder that exists wins over a hub id of the same spelling.

    Raises:
        BackboneError: it means nothing, or cannot be had.
    """
    if specification == "embedded":
        return BackboneSource(embedded.BACKBONE_ID, embedded.locate())
    folder = existing_folder(specification)
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise BackboneError(
                f"The folder {folder} holds no config.json; point to a folder that "
                "save_pretrained wrote.",
                code=BackboneFault.NOT_FOUND,
            )
        return BackboneSource(folder.resolve().name, folder.resolve())
    if HUB_ID.fullmatch(specification) and not specification.startswith("."):
        return BackboneSource(specification, download(specification))
    raise BackboneError(
        f"There is no backbone {specification!r}: give `embedded`, an existing folder, or a hub "
        "id such as google-t5/t5-base.",
        code=BackboneFault.NOT_FOUND,
    )


def existing_folder(specification: str) -> Path | None:
    """The folder of that path, or None where there is none."""
    try:
        folder = Path(specification).expanduser()
        return folder if folder.is_dir() else None
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
        "the folder here and set CAPSULE_BACKBONE to its path; `embedded` needs no network.",
        code=BackboneFault.UNREACHABLE,
    )


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
