"""Open files, in processes of their own: a limit that was given up does not come back."""

import json
import subprocess
import sys

import pytest

from service.descriptors import RESERVED, affordable

RAISE = """
import json, resource, sys
from service.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps([raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.parametrize("soft", [200, 300])
def test_the_limit_is_raised_as_far_as_it_may_be(soft: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RAISE, str(soft), "300"], capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout) == [300, 300, 300]


@pytest.mark.parametrize(
    ("wanted", "files", "given"),
    [
        (10_000, 1024 * 1024, 10_000),
        (10_000, 10_000 + RESERVED, 10_000),
        (10_000, 1024, 1024 - RESERVED),
        (10_000, 256, 1),
        (2, 1024, 2),
    ],
)
def test_connections_leave_files_to_everything_else(wanted: int, files: int, given: int) -> None:
    assert affordable(wanted, files) == given
