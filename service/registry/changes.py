"""How versions go and aliases move: in the store first, and then in what is served.

To be called under the task's lock, and not interrupted in between.
"""

from collections.abc import Collection

from service.errors import NotFound
from service.registry.catalogue import Catalogue
from service.registry.lanes import Lanes
from service.registry.ports import CapsuleBank
from service.registry.storage import stored
from service.store import Store
from service.store.base import AliasRecord, Removal


class Changes:
    """Deletes versions, and sets and deletes aliases.

    Args:
        store: the truth.
        bank: has the capsules of the catalogue.
        catalogue: what clients can name.
        lanes: have the threads.
    """

    def __init__(self, store: Store, bank: CapsuleBank, catalogue: Catalogue, lanes: Lanes) -> None:
        self.store = store
        self.bank = bank
        self.catalogue = catalogue
        self.lanes = lanes

    async def remove(self, task: str, version: int | None, until: float) -> Removal:
        """Delete a version, or all of a task's, and retire what the store no longer has.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
        """
        lane = self.lanes.writing
        try:
            removal = (
                await stored(lane, until, self.store.delete_task, task)
                if version is None
                else await stored(lane, until, self.store.delete_version, task, version)
            )
        except NotFound as error:
            # Gone by another hand, or by a deletion whose success was never reported.
            if version is not None and error.code == "version_not_found":
                self.retire(task, [version])
            elif task in self.catalogue.current.tasks:
                self.retire(task, list(self.catalogue.task(task).versions))
            raise
        self.retire(task, removal.versions)
        return removal

    def retire(self, task: str, versions: Collection[int]) -> None:
        """Take versions out of the catalogue, and only then out of the bank."""
        for served in self.catalogue.retract(task, versions):
            self.bank.remove(served)

    async def point(
        self, task: str, alias: str, version: int, if_match: int | None, until: float
    ) -> tuple[AliasRecord, bool]:
        """Set an alias.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
            PreconditionFailed: `alias_conflict`.
        """
        record, created = await stored(
            self.lanes.writing, until, self.store.set_alias, task, alias, version, if_match
        )
        self.catalogue.point(record)
        return record, created

    async def unpoint(
        self, task: str, alias: str, if_match: int | None, until: float
    ) -> AliasRecord:
        """Delete an alias.

        Raises:
            NotFound: `task_not_found` or `alias_not_found`.
            PreconditionFailed: `alias_conflict`.
        """
        record = await stored(
            self.lanes.writing, until, self.store.delete_alias, task, alias, if_match
        )
        self.catalogue.unpoint(task, alias)
        return record
