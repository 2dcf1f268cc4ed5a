"""The shape of a probe's answer."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """All is well."""

    status: Literal["ok"] = "ok"
