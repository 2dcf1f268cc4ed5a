import pytest
from sqlalchemy import update

from capsules.data.base import Dataset
from capsules.data.split import split
from capsules.errors import DataError
from service.errors import Unprocessable
from service.jobs.sql import SqlLedger
from service.jobs.tables import FileRow
from service.worker.rows import read_rows
from tests.service.worker.conftest import Submit
from tests.support.datasets import separable

TRAIN, VALIDATION, TEST = (separable(30, seed=seed) for seed in (1, 2, 3))


def test_rows_are_those_that_were_accepted(ledger: SqlLedger, submit: Submit) -> None:
    job = submit(train=TRAIN, validation=VALIDATION, test=TEST)
    rows = read_rows(ledger, job)
    assert (rows.train, rows.validation, rows.test) == (TRAIN, VALIDATION, TEST)


def test_without_validation_rows_a_part_is_set_aside(ledger: SqlLedger, submit: Submit) -> None:
    job = submit(train=TRAIN, validation_fraction=0.2, seed=4)
    rows = read_rows(ledger, job)
    parts = split(TRAIN, fraction=0.2, seed=4)
    assert (rows.train, rows.validation, rows.test) == (parts.train, parts.validation, None)
    assert len(rows.validation) == 6


def test_labels_keep_the_order_they_were_given_in(ledger: SqlLedger, submit: Submit) -> None:
    job = submit(train=TRAIN, test=separable(5, labels=("no", "yes")), labels=("yes", "no"))
    rows = read_rows(ledger, job)
    assert rows.train.labels == rows.validation.labels == ("yes", "no")
    assert rows.test is not None
    assert rows.test.labels == ("yes", "no")


def test_labels_that_no_training_row_has_are_refused(ledger: SqlLedger, submit: Submit) -> None:
    job = submit(train=TRAIN, validation=separable(9, labels=("no", "perhaps")))
    with pytest.raises(DataError, match="perhaps"):
        read_rows(ledger, job)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x1f\x8b\x08", None])
def test_rows_that_have_decayed_are_told_apart(
    ledger: SqlLedger, submit: Submit, content: bytes | None
) -> None:
    job = submit(train=TRAIN)
    with ledger.store.writing() as session:
        if content is None:
            session.delete(session.get_one(FileRow, (job.id, "train")))
        else:
            session.execute(update(FileRow).values(content=content))
    with pytest.raises(Unprocessable, match="submit the job again") as refused:
        read_rows(ledger, job)
    assert (refused.value.code, refused.value.field) == ("rows_damaged", "train")


def test_a_damaged_split_names_itself(ledger: SqlLedger, submit: Submit) -> None:
    whole: Dataset = separable(9)
    job = submit(train=whole, test=whole)
    with ledger.store.writing() as session:
        session.execute(update(FileRow).where(FileRow.split == "test").values(content=b"\x00"))
    with pytest.raises(Unprocessable, match="test rows"):
        read_rows(ledger, job)
