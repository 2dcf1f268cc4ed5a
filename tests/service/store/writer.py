"""A process to be killed: adds versions for ever, and says each number once it is acknowledged.

Usage: writer.py LOCATION
"""

import itertools
import sys

from service.store import open_store
from tests.service.store.samples import add

if __name__ == "__main__":
    store = open_store(sys.argv[1])
    for number in itertools.count():
        record = add(store, artefact=b"%d" % number * 10_000)
        store.set_alias("spam", "newest", record.version)
        sys.stdout.write(f"{record.version}\n")
        sys.stdout.flush()
