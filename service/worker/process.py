"""A worker process, from its start to its end.

It ends as if by a crash that was announced: what it was working on goes back to the queue, and the
process is gone at once, whatever its threads are doing. What it had finished is kept.
"""

from typing import NoReturn

import structlog

from service.jobs.sql import open_ledger
from service.logs import configure_logging
from service.settings import Settings, unknown_variables
from service.store import open_store
from service.store.errors import StoreError
from service.worker.ending import FAILURE, Ending, end_on_signals, end_with_parent, leave
from service.worker.identity import this_process
from service.worker.resources import limit_memory, quieten_threads, step_back
from service.worker.worker import Worker
from service.worker.workflows import WorkflowsUnavailable

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


def run(settings: Settings, *, supervised: bool = False) -> NoReturn:
    """Train what is queued until a signal comes, and end the process.

    Takes over the process: its logging, signals, priority and limits. The exit status is 0 after a
    signal; 1 where a database cannot be used or the slot was lost, as the log says. Where memory is
    limited and a job took all of it, the process runs its command anew.

    Args:
        settings: of the deployment.
        supervised: whether the process was started by a server, whose end is its own.
    """
    ending = Ending()
    end_on_signals(ending)
    step_back(settings.train_nice)
    limit_memory(settings.train_memory)
    quieten_threads()
    configure_logging(settings.log_level, settings.log_format)
    if supervised:
        end_with_parent(ending)
    else:
        for name in unknown_variables():
            logger.warning(
                "unknown_setting", variable=name, remedy="check the spelling, or unset it"
            )
    leave(work(settings, ending))


def work(settings: Settings, ending: Ending) -> int:
    """Work until the end is asked for; gives back the exit status."""
    try:
        store = open_store(settings.data_dir)
        worker = Worker(settings, open_ledger(store), store, this_process(), ending)
    except StoreError as error:
        logger.critical("start_failed", code="store_unavailable", reason=str(error))
        return FAILURE
    try:
        worker.start()
    except (StoreError, WorkflowsUnavailable) as error:
        logger.critical("start_failed", code="store_unavailable", reason=str(error))
        return FAILURE
    else:
        return ending.wait()
    finally:
        worker.stop()
        logger.info("worker_stopped")
