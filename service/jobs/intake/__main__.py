"""`python -m service.jobs.intake`: examines rows for `Examination`, in a process of its own."""

import os
import pickle
import sys

from service.jobs.intake.examine import examine

NICENESS = 10
"""How far the process steps back from the processor behind the server."""


def main() -> None:
    """Take files and demands from standard input, and give what was found to standard output."""
    os.nice(NICENESS)
    files, demands = pickle.load(sys.stdin.buffer)
    pickle.dump(examine(files, demands), sys.stdout.buffer)


if __name__ == "__main__":
    main()
