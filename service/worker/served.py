"""Measures the version that a task serves, on the rows that a new one was chosen by."""

from collections.abc import Callable, Mapping

from capsules.artefact.checks import check_backbone
from capsules.artefact.file import Capsule, parse
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.errors import ArtefactError, ArtefactFault, InputError
from capsules.evaluation.runner import predict
from capsules.executors.base import Executor
from capsules.template import Template
from service.jobs.ledger import DefaultMoved
from service.jobs.spec import Metric
from service.store.base import Store
from service.store.errors import NotFound
from service.worker.activation import Standing
from service.worker.evaluation import Evaluation


class Yardstick:
    """Measures served versions as a new one was measured, each once.

    Args:
        store: has their files.
        loaded: the backbone.
        executor: runs it.
        rows: the validation rows.
        metric: what versions are compared by.
        heed: is called between batches; what it raises ends the measurement.
    """

    def __init__(
        self,
        store: Store,
        loaded: LoadedBackbone,
        executor: Executor,
        rows: Dataset,
        metric: Metric,
        heed: Callable[[], None],
    ) -> None:
        self.store = store
        self.loaded = loaded
        self.executor = executor
        self.rows = rows
        self.metric = metric
        self.heed = heed
        self.known: dict[int, Standing] = {}

    def measure(self, task: str, version: int) -> Standing:
        """How a version does.

        Raises:
            DefaultMoved: it was deleted.
            StoreUnavailable: its file cannot be read now.
        """
        if version not in self.known:
            self.known[version] = self.measured(task, version)
        return self.known[version]

    def measured(self, task: str, version: int) -> Standing:
        """See :meth:`measure`."""
        try:
            capsule = self.fitting(self.store.artefact(task, version))
        except NotFound as error:
            raise DefaultMoved(str(error)) from error
        except ArtefactError as error:
            return Standing(version, broken=obstacle(error))
        fields = Template(capsule.manifest.template).fields
        if not all(set(fields) <= row.inputs.keys() for row in self.rows):
            wanted = " and ".join(fields)
            return Standing(version, incomparable=f"takes the inputs {wanted}, which the rows lack")
        try:
            return Standing(version, score=self.score(capsule, fields))
        except InputError as error:
            reason = error.message.rstrip(".")
            return Standing(version, incomparable=f"cannot answer one of the rows ({reason})")

    def fitting(self, data: bytes) -> Capsule:
        """A stored capsule that this backbone can run.

        Raises:
            ArtefactError: it cannot.
        """
        capsule = parse(data)
        info = self.loaded.info
        check_backbone(capsule.manifest, reference(info), info.max_tokens)
        return capsule

    def score(self, capsule: Capsule, fields: tuple[str, ...]) -> float:
        """The metric; labels are compared by their names, whatever their order.

        Raises:
            InputError: a row cannot be answered.
        """
        inputs: list[Mapping[str, str]] = [
            {field: row.inputs[field] for field in fields} for row in self.rows
        ]
        answers = predict(
            self.loaded, self.executor, capsule, inputs, progress=lambda *_: self.heed()
        )
        evaluation = Evaluation.of(
            [row.label for row in self.rows],
            [answer.label for answer in answers],
            labels=list(dict.fromkeys((*self.rows.labels, *capsule.manifest.labels))),
        )
        return evaluation.score(self.metric)


def obstacle(error: ArtefactError) -> str:
    """Why a version does not run here, as the end of a sentence."""
    if error.code == ArtefactFault.BACKBONE_MISMATCH:
        return "was trained on another backbone and cannot run on this one"
    return "is damaged and cannot run"
