"""Loads weights from a folder and refuses an incomplete checkpoint."""

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from capsules.backbones.source import BackboneSource, corrupt
from capsules.errors import BackboneError, BackboneFault


def load_pretrained(
    model_class: Any,
    source: BackboneSource,
    dtype: torch.dtype,
    *,
    attention: str = "sdpa",
    **options: Any,
) -> PreTrainedModel:
    """`from_pretrained` on local files only.

    Args:
        model_class: a transformers model or auto class.
        source: where the configuration and the weights are.
        dtype: dtype to load the weights in.
        attention: the implementation to use; scaled-dot-product attention wherever there is one.
        options: passed on.

    Raises:
        BackboneError: the files cannot be read, or lack weights the model needs.
    """
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    progress = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        model, report = model_class.from_pretrained(
            source.folder,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            output_loading_info=True,
            **source.gguf_option,
            **options,
        )
    # Every error, since damaged files surface as whatever the libraries beneath trip over.
    except Exception as error:
        raise corrupt(f"The backbone in {source.place} cannot be loaded", error) from error
    finally:
        transformers_logging.set_verbosity(level)
        if progress:
            transformers_logging.enable_progress_bar()
    missing = sorted(report["missing_keys"])
    if missing:
        raise BackboneError(
            f"The backbone in {source.place} lacks {len(missing)} weights, the first is {missing[0]!r}; "
            "point to a complete checkpoint.",
            code=BackboneFault.CORRUPT,
        )
    loaded: PreTrainedModel = model
    return loaded
