"""How a manifest names the backbone that is loaded."""

from capsules.artefact.manifest import BackboneRef
from capsules.backbones.base import BackboneInfo


def reference(info: BackboneInfo) -> BackboneRef:
    """The part of a backbone's identity that manifests carry."""
    return BackboneRef(
        id=info.id,
        family=info.family,
        hidden_size=info.hidden_size,
        num_layers=info.num_layers,
        fingerprint=info.fingerprint,
    )
