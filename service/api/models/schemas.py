"""The shapes of models and the backbone."""

from typing import Literal

from pydantic import BaseModel, Field


class Model(BaseModel):
    """A task that can be classified with, as OpenAI-style clients list models."""

    id: str = Field(description="The task's name.")
    object: Literal["model"] = "model"
    created: int = Field(description="When the version was stored; Unix time in seconds.")
    owned_by: str = Field(description="Who brought the version: `upload`, `zoo` or `training`.")
    version: int = Field(description="What the bare name means now.")
    digest: str = Field(description="Hex sha256 of that version's file.")


class ModelList(BaseModel):
    """Every task that can be classified with, by name."""

    object: Literal["list"] = "list"
    data: list[Model]


class BackboneReply(BaseModel):
    """The frozen transformer that all tasks share."""

    id: str = Field(description="The name a person knows it by.")
    family: Literal["encoder-only", "decoder-only", "encoder-decoder"]
    architecture: str = Field(description="The model type of its configuration.")
    hidden_size: int
    num_layers: int
    parameters: int = Field(description="How many weights it has.")
    vocab_size: int
    max_tokens: int = Field(description="Longest text, special tokens included.")
    fingerprint: str = Field(description="Hex sha256 of weights, tokenizer and configuration.")
    device: str
    dtype: str
    executor: str = Field(
        description="What runs it: `onnxruntime`, `onnxruntime-int8`, `torch` or `torch-compiled`."
    )
    path: str = Field(description="The folder on the server that it was loaded from.")
