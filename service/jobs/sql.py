"""The ledger on the store's database."""

from service.jobs.ledger import Ledger
from service.jobs.sql_clients import SqlClients
from service.jobs.sql_slots import SqlSlots
from service.jobs.sql_work import SqlWork
from service.store.base import Store
from service.store.sql import SqlStore


class SqlLedger(SqlClients, SqlSlots, SqlWork):
    """A `Ledger` in the tables beside those of a store; closed with the store.

    Args:
        store: whose database, clock and turn to write it shares.
    """

    def __init__(self, store: SqlStore) -> None:
        self.store = store


def open_ledger(store: Store) -> Ledger:
    """Return the ledger in the database of an open store.

    Raises:
        TypeError: If the store is not in an SQL database.
    """
    if not isinstance(store, SqlStore):
        raise TypeError(
            f"store: a {type(store).__name__} has no SQL database; pass one of open_store"
        )
    return SqlLedger(store)
