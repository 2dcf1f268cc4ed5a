"""A process to be killed: uploads for ever, and names each version once it is acknowledged.

Usage: writer.py DATA_DIR
"""

import asyncio
import itertools
import sys
from pathlib import Path

from service.registry.registry import Registry
from service.store import open_store
from tests.service.registry.samples import an_artefact
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine


async def upload_for_ever(data_dir: Path) -> None:
    registry = Registry(open_store(data_dir), FakeEngine(), INFO)
    await registry.load()
    for seed in itertools.count():
        record, _ = await registry.upload(an_artefact(seed=seed))
        sys.stderr.write(f"{record.version}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    asyncio.run(upload_for_ever(Path(sys.argv[1])))
