import pytest

from capsules.artefact.manifest import Golden
from service.engine.config import EngineConfig
from service.engine.records import PROOF_CALLER, RowAnswer, Served
from service.errors import DeadlineExceeded, InternalError, Unavailable, Unprocessable
from service.registry.proof import check, prove
from tests.service.registry.samples import a_capsule
from tests.support.fake_engine import FakeEngine

LABELS = ("no", "maybe", "yes")


def example(label: str, *probs: float) -> Golden:
    return Golden(inputs={"text": "x"}, label=label, probs=list(probs))


def answer(*probs: float) -> RowAnswer:
    return RowAnswer(probs=probs, input_tokens=3, truncated=False)


@pytest.mark.parametrize(
    ("recorded", "given"),
    [
        ((0.1, 0.2, 0.7), (0.1, 0.2, 0.7)),
        ((0.1, 0.2, 0.7), (0.109, 0.2, 0.691)),
        ((0.1, 0.2, 0.7), (0.091, 0.209, 0.7)),
    ],
)
def test_agrees_within_the_tolerance(recorded: tuple[float, ...], given: tuple[float, ...]) -> None:
    check(0, example("yes", *recorded), answer(*given), LABELS)


def test_names_the_example_and_the_other_label() -> None:
    with pytest.raises(Unprocessable) as refused:
        check(3, example("yes", 0.49, 0.01, 0.5), answer(0.495, 0.01, 0.495 - 1e-9), LABELS)
    assert refused.value.code == "golden_mismatch"
    assert refused.value.field == "golden.3"
    assert "Golden example 3 gives the label 'no'" in refused.value.detail
    assert "'yes' was recorded" in refused.value.detail


def test_says_by_how_much_the_worst_probability_is_off() -> None:
    with pytest.raises(Unprocessable) as refused:
        check(1, example("yes", 0.10, 0.20, 0.70), answer(0.105, 0.215, 0.68), LABELS)
    assert refused.value.code == "golden_mismatch"
    assert "gives 'yes' the probability 0.6800 here" in refused.value.detail
    assert "0.7000 was recorded, which is 0.0200 off" in refused.value.detail


class TestRounded:
    """Executors that compute less exactly than the trainer did."""

    def test_probabilities_may_be_further_off(self) -> None:
        recorded = example("yes", 0.10, 0.20, 0.70)
        check(0, recorded, answer(0.20, 0.25, 0.55), LABELS, 0.35)
        with pytest.raises(Unprocessable) as refused:
            check(0, recorded, answer(0.50, 0.50, 0.0), LABELS, 0.35)
        assert "gives the label 'no'" in refused.value.detail
        assert "0.6000 ahead of it, with only labels less than 0.35 behind allowed" in (
            refused.value.detail
        )
        with pytest.raises(Unprocessable, match=r"0\.3600 off with at most 0\.35 allowed"):
            check(0, example("yes", 0.0, 0.0, 1.0), answer(0.0, 0.36, 0.64), LABELS, 0.35)

    def test_a_label_that_was_close_may_win(self) -> None:
        recorded = example("yes", 0.30, 0.20, 0.50)
        check(0, recorded, answer(0.45, 0.15, 0.40), LABELS, 0.35)
        check(0, recorded, answer(0.45, 0.15, 0.40), LABELS, 0.21)
        with pytest.raises(Unprocessable, match=r"'yes' was recorded, 0\.2000 ahead of it"):
            check(0, recorded, answer(0.45, 0.15, 0.40), LABELS, 0.19)

    def test_how_close_counts_for_the_label_that_won(self) -> None:
        """Not for the one that was second in the record."""
        with pytest.raises(Unprocessable, match="gives the label 'maybe'"):
            check(0, example("yes", 0.44, 0.1, 0.46), answer(0.2, 0.45, 0.35), LABELS, 0.35)

    def test_where_nothing_is_rounded_no_other_label_is_allowed(self) -> None:
        with pytest.raises(Unprocessable, match="with no other label allowed"):
            check(0, example("yes", 0.499, 0.0, 0.501), answer(0.501, 0.0, 0.499), LABELS)


class TestProve:
    @pytest.fixture
    def engine(self) -> FakeEngine:
        return FakeEngine()

    def serve(self, engine: FakeEngine) -> tuple[list[Golden], Served]:
        capsule = a_capsule()
        served = engine.bank.add(capsule, version=1, digest="d" * 64)
        return capsule.manifest.golden, served

    async def test_replays_through_the_engine(self, engine: FakeEngine) -> None:
        golden, served = self.serve(engine)
        await prove(golden, served, engine, 1.0)
        shifted = [
            Golden(inputs=g.inputs, label=g.label, probs=[p * 0.9 for p in g.probs]) for g in golden
        ]
        with pytest.raises(Unprocessable, match="Golden example 1 gives"):
            await prove([*golden, *shifted], served, engine, 1.0)

    async def test_takes_its_turns_as_a_caller_of_its_own(self, engine: FakeEngine) -> None:
        golden, served = self.serve(engine)
        await prove(golden, served, engine, 1.0)
        assert engine.callers == [PROOF_CALLER]
        assert 0 < EngineConfig().weights[PROOF_CALLER] < 1

    async def test_allows_what_the_executor_needs(self, engine: FakeEngine) -> None:
        golden, served = self.serve(engine)
        shifted = [
            Golden(inputs=g.inputs, label=g.label, probs=[p * 0.9 for p in g.probs]) for g in golden
        ]
        await prove(shifted, served, engine, 1.0, 0.35)

    async def test_needs_no_engine_without_examples(self, engine: FakeEngine) -> None:
        _, served = self.serve(engine)
        engine.failure = Unavailable("full", code="queue_full")
        await prove([], served, engine, 1.0)

    async def test_blames_the_capsule_for_an_example_that_is_refused(
        self, engine: FakeEngine
    ) -> None:
        _, served = self.serve(engine)
        blank = Golden(inputs={"text": "  "}, label="yes", probs=[0.5, 0.5])
        with pytest.raises(Unprocessable, match=r"cannot be classified \(The text is empty") as r:
            await prove([blank], served, engine, 1.0)
        assert r.value.code == "golden_mismatch"

    async def test_blames_the_capsule_for_scores_that_are_not_finite(
        self, engine: FakeEngine
    ) -> None:
        golden, served = self.serve(engine)
        engine.row_failure = InternalError("broken", code="non_finite_scores")
        with pytest.raises(Unprocessable, match="not finite") as refused:
            await prove(golden, served, engine, 1.0)
        assert refused.value.code == "golden_mismatch"

    async def test_says_for_how_long_it_waited(self, engine: FakeEngine) -> None:
        golden, served = self.serve(engine)
        engine.failure = DeadlineExceeded("late", code="deadline_exceeded")
        with pytest.raises(DeadlineExceeded, match=r"within 2\.5 s; upload the capsule again"):
            await prove(golden, served, engine, 2.5)

    async def test_blames_the_server_for_its_own_failures(self, engine: FakeEngine) -> None:
        golden, served = self.serve(engine)
        engine.row_failure = InternalError("broken", code="inference_failed")
        with pytest.raises(InternalError):
            await prove(golden, served, engine, 1.0)
        engine.failure = Unavailable("full", code="queue_full", retry_after=1)
        with pytest.raises(Unavailable):
            await prove(golden, served, engine, 1.0)
