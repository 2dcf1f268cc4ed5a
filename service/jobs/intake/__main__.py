"""`python -m service.jobs.intake`: examines rows for `Examination`, in a process of its own."""

import os
import pickle
import select
import sys
import threading

from service.jobs.intake.examine import examine

NICENESS = 10
"""How far the process steps back from the processor behind the server."""


ABANDONED = 1
"""Exit status where nobody is there to be told what was found."""


def end_with_reader() -> None:
    """End the process once nobody reads its output: not even a server that was killed leaves it."""

    def main() -> None:
        poll = select.poll()
        # Asks for nothing, and is told all the same that the other end is gone.
        poll.register(sys.stdout.fileno(), 0)
        poll.poll()
        os._exit(ABANDONED)

    threading.Thread(target=main, name="reader", daemon=True).start()


def main() -> None:
    """Take files and demands from standard input, and give what was found to standard output."""
    end_with_reader()
    os.nice(NICENESS)
    files, demands = pickle.load(sys.stdin.buffer)
    pickle.dump(examine(files, demands), sys.stdout.buffer)


if __name__ == "__main__":
    main()
