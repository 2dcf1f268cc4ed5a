"""What is compared: the capsule, its variants and ablations, and the baselines."""

from collections.abc import Sequence
from dataclasses import dataclass

from capsules.backbones.base import Family
from capsules.baselines.registry import method as baseline
from capsules.errors import OptionError
from capsules.training.config import DEFAULT_LEARNING_RATE, VariantName


@dataclass(frozen=True, slots=True)
class Method:
    """One way of adapting the frozen backbone.

    Attributes:
        name: on the command line and in tables.
        variant: of the capsule; None for a linear head alone and for baselines.
        baseline: whether another library's method is trained, by the name it has here.
    """

    name: str
    variant: VariantName | None = None
    baseline: bool = False

    def learning_rate(self, family: Family) -> float:
        """The learning rate where none is asked for.

        Raises:
            OptionError: a baseline's library is missing.
        """
        if self.baseline:
            return float(baseline(self.name).learning_rate)
        return DEFAULT_LEARNING_RATE[family]


EVERY = (
    Method("capsule", variant="addition"),
    Method("prepending", variant="prepending"),
    Method("extraction", variant="extraction"),
    Method("projection", variant="projection"),
    Method("task-only", variant="task-only"),
    Method("instance-only", variant="instance-only"),
    Method("linear-head"),
    Method("prompt-tuning", baseline=True),
    Method("p-tuning-v2", baseline=True),
    Method("lora", baseline=True),
)
HEAD_ALONE = frozenset({"instance-only", "linear-head"})
NOTHING_TO_LEARN = "has nothing to learn on a backbone that answers in words"
METHODS: dict[str, Method] = {one.name: one for one in EVERY}


def choose(names: Sequence[str]) -> tuple[Method, ...]:
    """The methods named, in the order of the tables; all where none is.

    Raises:
        OptionError: one is not known.
    """
    for name in names:
        if name not in METHODS:
            raise OptionError(
                f"There is no method {name!r}; choose of: {', '.join(METHODS)}.", field="methods"
            )
    return tuple(one for one in EVERY if not names or one.name in names)


def fitting(
    methods: Sequence[Method], family: Family, *, named: bool
) -> tuple[list[Method], list[Method]]:
    """The methods that have something to learn on a family, and the others.

    Args:
        methods: those that were chosen.
        family: of the backbone; where labels are words there is no head to learn.
        named: whether each was asked for by its name, so that all must fit.

    Raises:
        OptionError: none fits, or one that was asked for does not.
    """
    headless = family == "encoder-decoder"
    others = [one for one in methods if headless and one.name in HEAD_ALONE]
    fit = [one for one in methods if one not in others]
    if others and (named or not fit):
        raise OptionError(
            f"{others[0].name} {NOTHING_TO_LEARN}; name other --methods.", field="methods"
        )
    return fit, others


def learning_rates(
    methods: Sequence[Method], family: Family, asked: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """The learning rates that each method may choose from.

    Args:
        methods: those that run.
        family: of the backbone.
        asked: lists such as `0.01,0.02` for all methods, or `lora=0.001,0.002` for one, which
            wins; a method that has none takes its default.

    Raises:
        OptionError: a list is malformed, or is for a method that does not run.
    """
    general: tuple[float, ...] | None = None
    own: dict[str, tuple[float, ...]] = {}
    for text in asked:
        name, separator, values = text.rpartition("=")
        if not separator:
            general = parse_rates(values)
        elif name not in {one.name for one in methods}:
            raise OptionError(
                f"{text!r} is for {name!r}, which does not run; the methods that do: "
                f"{', '.join(one.name for one in methods)}.",
                field="learning_rates",
            )
        else:
            own[name] = parse_rates(values)
    return {
        one.name: own.get(one.name) or general or (one.learning_rate(family),) for one in methods
    }


def parse_rates(text: str) -> tuple[float, ...]:
    """Distinct learning rates in ascending order.

    Raises:
        OptionError: they are none.
    """
    try:
        rates = sorted({float(part) for part in text.split(",")})
    except ValueError:
        rates = []
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise OptionError(
            f"{text!r} is no list of learning rates; write positive numbers such as 0.01,0.02.",
            field="learning_rates",
        )
    return tuple(rates)
