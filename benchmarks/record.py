"""Base of everything that is written to a result file."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
