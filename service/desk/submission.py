"""A training job as a client asks for it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from service.jobs.intake.records import RowFile
from service.jobs.records import Idempotency, Split
from service.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Submission:
    """What was submitted.

    Attributes:
        spec: what to do.
        files: rows by split, those to learn from among them; closed by whoever opened them.
        key: under which the client wants one job and no more, or None.
    """

    spec: JobSpec
    files: Mapping[Split, RowFile]
    key: str | None = None

    @property
    def idempotency(self) -> Idempotency | None:
        """The key with a digest of all that was submitted under it."""
        if self.key is None:
            return None
        content = {
            "spec": self.spec.model_dump(mode="json"),
            "files": {
                split: [file.format.value, file.digest] for split, file in self.files.items()
            },
        }
        text = json.dumps(content, sort_keys=True)
        return Idempotency(self.key, hashlib.sha256(text.encode()).hexdigest())
