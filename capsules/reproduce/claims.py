"""What runs say about the claims of the paper, in sentences that hold no figure of their own."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from capsules.reproduce.method import METHODS
from capsules.reproduce.record import Configuration, Row
from capsules.reproduce.suite import CSQA, SUPERGLUE
from capsules.reproduce.summary import Cell, Paired, Verdict, cells, paired
from capsules.reproduce.table import Lines, interval, percentage, signed

CAPSULE = "capsule"
VARIANTS = ("prepending", "extraction", "projection")
BASELINES = tuple(name for name, one in METHODS.items() if one.baseline)
# What the paper's own figures were measured on, by the names that configurations have for them.
PAPER_BACKBONES = {"t5": "T5-Base and T5-Large", "llama": "Llama-3.2-1B", "qwen2": "Qwen2.5"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, and what these runs say of it.

    Attributes:
        text: the claim.
        verdict: in a few words.
        evidence: the figures behind it.
    """

    text: str
    verdict: str
    evidence: str


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What the rows of any number of backbones say, one claim after the other."""
    return [
        share(rows),
        compared(rows, "Its instance term helps: it is better than task-only", "task-only"),
        compared(rows, "Its task vector helps: it is better than instance-only", "instance-only"),
        compared(rows, "It is better than a linear head on the bare backbone", "linear-head"),
        *(
            compared(rows, f"It is better than {name}, which trains more parameters", name)
            for name in BASELINES
        ),
        *(
            compared(rows, f"Adding the mean is better than the variant {name}", name)
            for name in VARIANTS
        ),
        speed(rows),
        published(rows),
        coverage(rows),
    ]


def as_lines(found: Iterable[Claim]) -> Lines:
    """Claims as a table."""
    head = ["claim about the capsule", "these runs", "evidence"]
    return head, [[one.text, one.verdict, one.evidence] for one in found]


def conclusion(pairs: Sequence[Paired]) -> str:
    """Whether the instance term helps over task-only, in a few sentences."""
    if not pairs:
        return "No set has been run with both the capsule and task-only yet."
    counted = count(pairs)
    mean = statistics.fmean(one.mean for one in pairs)
    helps = counted["helps"]
    sentences = [
        f"The seeds show that the instance term helps over task-only on {listed(helps)}."
        if helps
        else "On no set do the seeds show that the instance term helps over task-only."
    ]
    others: dict[Verdict, str] = {
        "hurts": "They show that it hurts on",
        "undecided": "They disagree too much to tell on",
        "one seed": "There is only one seed, which decides nothing, on",
    }
    sentences += [
        f"{words} {listed(counted[verdict])}."
        for verdict, words in others.items()
        if counted[verdict]
    ]
    sets = "1 set" if len(pairs) == 1 else f"{len(pairs)} sets"
    return " ".join([*sentences, f"The mean difference over {sets} is {signed(mean)}."])


def share(rows: Sequence[Row]) -> Claim:
    """How little is trained."""
    text = "It trains one vector a layer, a tiny share of the backbone"
    own = [one for group in comparisons(rows).values() for one in cells(group)]
    own = sorted((one for one in own if one.method == CAPSULE), key=lambda one: one.percentage)
    if not own:
        return Claim(text, "do not say", "no run of it")
    least, most = percentage(own[0]), percentage(own[-1])
    span = least if least == most else f"{least} to {most}"
    others = [
        f"{name} trains {statistics.fmean(ratios):,.1f} times as many"
        for name in BASELINES
        if (ratios := ratios_to(rows, name, lambda one: one.trainable_parameters))
    ]
    return Claim(text, "support it", "; ".join([f"{span} of the backbone, head included", *others]))


def ratios_to(rows: Sequence[Row], other: str, measure: Callable[[Cell], float]) -> list[float]:
    """Another method's measure over the capsule's, set by set, backbone by backbone."""
    found = []
    for group in comparisons(rows).values():
        by_key = {(one.task, one.method): measure(one) for one in cells(group)}
        found += [
            value / by_key[task, CAPSULE]
            for (task, method), value in by_key.items()
            if method == other and by_key.get((task, CAPSULE))
        ]
    return found


def compared(rows: Sequence[Row], text: str, against: str) -> Claim:
    """The capsule against one other method, set by set."""
    pairs = all_pairs(rows, against)
    if not pairs:
        return Claim(text, "do not say", f"no set with both it and {against}")
    counted = count(pairs)
    parts = {
        "support it": counted["helps"],
        "contradict it": counted["hurts"],
        "leave it open": counted["undecided"] + counted["one seed"],
    }
    verdict = "; ".join(f"{words} on {listed(tasks)}" for words, tasks in parts.items() if tasks)
    evidence = "; ".join(
        f"{one.task} {signed(one.mean)}"
        + (" (one seed)" if one.low is None else f" ({interval(one)})")
        for one in pairs
    )
    return Claim(text, verdict, evidence)


def speed(rows: Sequence[Row]) -> Claim:
    """Seconds an epoch beside those of the baselines."""
    text = "It trains faster than methods that search for a prompt length"
    parts = [
        f"{name} takes {statistics.fmean(ratios):.2f} times as long"
        for name in BASELINES
        if (ratios := ratios_to(rows, name, lambda one: one.seconds / one.epochs))
    ]
    if not parts:
        return Claim(text, "do not say", "no set with both it and one of them")
    return Claim(
        text,
        "cannot say: no length was searched for",
        f"an epoch alone: {'; '.join(parts)}, on the machines named below",
    )


def published(rows: Sequence[Row]) -> Claim:
    """Whether the paper's own backbones are among those of the runs."""
    text = "Its published scores on T5, Llama and Qwen"
    run = {row.configuration.backbone.architecture for row in rows}
    missing = [name for key, name in PAPER_BACKBONES.items() if key not in run]
    there = sorted({row.configuration.backbone.id for row in rows})
    evidence = f"run on: {listed(there)}; not run on: {listed(missing)}"
    if len(missing) == len(PAPER_BACKBONES):
        return Claim(text, "cannot say", evidence)
    return Claim(text, "say something for the backbones that were run", evidence)


def coverage(rows: Sequence[Row]) -> Claim:
    """Which of the paper's sets the runs are about."""
    text = "Its scores on all of SuperGLUE's six sets and CSQA"
    notes = {row.task: row.note for row in rows}
    names = [task.name for task in (*SUPERGLUE, *CSQA)]
    missing = [name for name in names if name not in notes]
    partial = [f"{name} ({notes[name]})" for name in names if notes.get(name)]
    if not missing and not partial:
        return Claim(text, "say something for all of them", "every set, with all published rows")
    parts = [f"not run: {listed(missing)}"] if missing else []
    parts += [f"run on part of the rows: {listed(partial)}"] if partial else []
    return Claim(text, "cannot say for some", "; ".join(parts))


def all_pairs(rows: Sequence[Row], against: str) -> list[Paired]:
    """The capsule minus another method; where there are several backbones, the set names it."""
    groups = comparisons(rows)
    found = []
    for name, group in groups.items():
        for one in paired(group, CAPSULE, against):
            task = one.task if len(groups) == 1 else f"{one.task} ({name})"
            found.append(one.model_copy(update={"task": task}))
    return found


def comparisons(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each configuration, by a name for it; only those can be compared."""
    groups: dict[Configuration, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.configuration, []).append(row)
    backbones = Counter(configuration.backbone.id for configuration in groups)
    return {
        one.backbone.id if backbones[one.backbone.id] == 1 else described(one): group
        for one, group in groups.items()
    }


def described(configuration: Configuration) -> str:
    """A backbone with the settings of its runs."""
    settings = configuration.settings.model_dump()
    listing = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    return f"{configuration.backbone.id}, {listing}"


def count(pairs: Sequence[Paired]) -> dict[Verdict, list[str]]:
    """The sets of each verdict."""
    found: dict[Verdict, list[str]] = {"helps": [], "hurts": [], "undecided": [], "one seed": []}
    for one in pairs:
        found[one.verdict].append(one.task)
    return found


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) if names else "none"
