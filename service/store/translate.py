"""Foreign exceptions become the store's own, here and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic.util.exc import CommandError
from sqlalchemy import exc

from service.store.errors import InvalidValue, StoreError, StoreUnavailable

REMEDY = "check the disk space, permissions and health of the database, then retry"


@contextmanager
def translated(*driver_errors: type[Exception]) -> Iterator[None]:
    """Turn whatever the database raises into a `StoreError`.

    Args:
        driver_errors: Errors of the driver that may come without SQLAlchemy's wrapping, as they
            do from a statement that is run while connecting.

    Raises:
        InvalidValue: If the database refused a value: a constraint, its range or its encoding.
        StoreUnavailable: If the database is locked, full, damaged or out of reach.
        StoreError: If the store itself did wrong.
    """
    unavailable: tuple[type[Exception], ...] = (
        exc.DBAPIError,
        exc.TimeoutError,
        OSError,
        *driver_errors,
    )
    try:
        yield
    except (exc.IntegrityError, exc.DataError, OverflowError, UnicodeError) as error:
        raise InvalidValue(f"the database refused a value: {cause(error)}") from error
    except exc.ProgrammingError as error:
        raise StoreError(f"the store sent a wrong statement: {cause(error)}") from error
    except unavailable as error:
        raise StoreUnavailable(f"the store is unavailable: {cause(error)}; {REMEDY}") from error
    except exc.StatementError as error:
        # Raised before the database is reached: a parameter had no representation.
        raise InvalidValue(f"a value cannot be stored: {cause(error)}") from error
    except (exc.SQLAlchemyError, CommandError) as error:
        raise StoreError(f"the store failed: {cause(error)}") from error


def cause(error: Exception) -> str:
    """Say what went wrong without the statement and its parameters, which may hold user text."""
    origin = error.orig if isinstance(error, exc.StatementError) else None
    return str(origin if origin is not None else error) or type(error).__name__
