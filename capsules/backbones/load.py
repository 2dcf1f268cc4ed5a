"""From a specification to a backbone that is ready to run."""

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.backbones.device import resolve_device, resolve_dtype
from capsules.backbones.fingerprint import fingerprint, read_json
from capsules.backbones.registry import backbone_class
from capsules.backbones.source import BackboneSource, corrupt, resolve
from capsules.backbones.tokeniser import Tokeniser
from capsules.errors import BackboneError, BackboneFault


def load(specification: str, *, device: str = "auto", dtype: str = "auto") -> LoadedBackbone:
    """Load a frozen backbone with its tokeniser and identity.

    Args:
        specification: `embedded`, a local folder or GGUF file, or a hub id.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        OptionError: the device or dtype cannot be used here.
        BackboneError: the backbone cannot be had, is incomplete or of an unsupported family.
    """
    # Options first, since finding the files may download gigabytes.
    where = resolve_device(device)
    precision = resolve_dtype(dtype, where)
    return load_source(resolve(specification), where, precision)


def load_source(source: BackboneSource, device: torch.device, dtype: torch.dtype) -> LoadedBackbone:
    """Load a backbone whose files have been found; see :func:`load`."""
    # Read here first: transformers' error for a type it does not know suggests to upgrade it.
    if source.gguf is None:
        model_type = read_json(source.folder / "config.json").get("model_type")
        if model_type is not None:
            backbone_class(model_type)
    try:
        config = AutoConfig.from_pretrained(
            source.folder, local_files_only=True, **source.gguf_option
        )
    # Every error, since damaged files surface as whatever the libraries beneath trip over.
    except Exception as error:
        raise corrupt(f"The configuration in {source.place} cannot be used", error) from error
    adapter = backbone_class(config.model_type)
    model = adapter.load_model(source, dtype)
    backbone = adapter(model)
    backbone.move(device)
    info = BackboneInfo(
        id=source.id,
        family=adapter.family,
        architecture=config.model_type,
        hidden_size=config.hidden_size,
        num_layers=len(backbone.layers),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocab_size=config.vocab_size,
        max_tokens=backbone.max_tokens,
        fingerprint=fingerprint(source),
        path=source.place,
    )
    return LoadedBackbone(info=info, backbone=backbone, tokeniser=load_tokeniser(source))


def load_tokeniser(source: BackboneSource) -> Tokeniser:
    """The tokeniser beside a backbone's weights.

    Raises:
        BackboneError: it has no fast tokenizer.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, local_files_only=True, **source.gguf_option
        )
    except Exception as error:
        raise corrupt(f"The tokenizer in {source.place} cannot be loaded", error) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BackboneError(
            f"The backbone {source.id!r} has no fast tokenizer; put a tokenizer.json beside its "
            "weights.",
            code=BackboneFault.NO_FAST_TOKENIZER,
        )
    return Tokeniser(tokenizer.backend_tokenizer, pad_id=tokenizer.pad_token_id or 0)
