"""Open files, in processes of their own: a limit that was given up does not come back."""

import json
import subprocess
import sys

import pytest

from service.descriptors import RESERVED

ASK = """
import json, resource, sys
from service.descriptors import affordable
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(json.dumps([affordable(wanted), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "given", "allowed"),
    [
        (700, 900, 100, 100, 700),
        (700, 900, 300, 300, 300 + RESERVED),
        (700, 1100, 10_000, 1100 - RESERVED, 1100),
        (1100, 1100, 10_000, 1100 - RESERVED, 1100),
        (200, 301, 10_000, 151, 301),
    ],
    ids=["enough", "raised", "as far as it may be", "there already", "half of few"],
)
def test_files_are_asked_for_and_some_are_left_to_everything_else(
    soft: int, hard: int, wanted: int, given: int, allowed: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, (soft, hard, wanted))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == [given, allowed, hard]
