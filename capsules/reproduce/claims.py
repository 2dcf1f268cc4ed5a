"""What runs say about the claims of the paper, in sentences that hold no figure of their own."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from capsules.reproduce.method import METHODS
from capsules.reproduce.record import Frozen, Row
from capsules.reproduce.suite import CSQA, SUPERGLUE
from capsules.reproduce.summary import Paired, Verdict, cells, paired
from capsules.reproduce.table import Lines, interval, percentage, signed

CAPSULE = "capsule"
VARIANTS = ("prepending", "extraction", "projection")
BASELINES = tuple(name for name, one in METHODS.items() if one.baseline)
# The paper's capsule trains at most 0.004 % of a backbone without a head; on small backbones a head
# of several labels weighs more than the vectors, which this leaves room for.
TINY_PERCENTAGE = 0.1
# Copies of one backbone may differ in padding of the vocabulary or in norms, hardly in more.
SIZE_TOLERANCE = 0.03

Files = Mapping[str, Sequence[Row]]
"""The runs of one configuration each, by the name of their file; only those can be compared."""


@dataclass(frozen=True, slots=True)
class Published:
    """A backbone that the paper's own figures were measured on.

    Attributes:
        name: as the paper has it.
        architecture: the model type of its configuration.
        parameters: how many weights it has; shared ones count once.
    """

    name: str
    architecture: str
    parameters: int

    def is_run_on(self, backbone: Frozen) -> bool:
        """Whether a backbone has this one's architecture and size."""
        difference = abs(backbone.parameters - self.parameters)
        return (
            backbone.architecture == self.architecture
            and difference <= SIZE_TOLERANCE * self.parameters
        )


PAPER_BACKBONES = (
    Published("T5-Base", "t5", 222_903_552),
    Published("T5-Large", "t5", 737_668_096),
    Published("Llama-3.2-1B", "llama", 1_235_814_400),
    Published("Qwen2.5-1.5B", "qwen2", 1_543_714_304),
    # Without its output matrix, which is one of its own and is not loaded.
    Published("Qwen2.5-7B", "qwen2", 7_070_619_136),
)


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


def claims(files: Files) -> list[Claim]:
    """What the runs of any number of backbones say, one claim after the other."""
    rows = [row for group in files.values() for row in group]
    return [
        share(files),
        compared(files, "Its instance term helps: it is better than task-only", "task-only"),
        compared(files, "Its task vector helps: it is better than instance-only", "instance-only"),
        compared(files, "It is better than a linear head on the bare backbone", "linear-head"),
        *(
            compared(files, f"It is better than {name}, which trains more parameters", name)
            for name in BASELINES
        ),
        *(
            compared(files, f"Adding the mean is better than the variant {name}", name)
            for name in VARIANTS
        ),
        speed(),
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
        "undecided": "They disagree too much, or differ by too little, to tell on",
        "equal": "Both score the same with every seed on",
        "one seed": "There is only one seed, which decides nothing, on",
    }
    sentences += [
        f"{words} {listed(counted[verdict])}."
        for verdict, words in others.items()
        if counted[verdict]
    ]
    sets = "1 set" if len(pairs) == 1 else f"{len(pairs)} sets"
    return " ".join([*sentences, f"The mean difference over {sets} is {signed(mean)}."])


def share(files: Files) -> Claim:
    """How little is trained, against :data:`TINY_PERCENTAGE`."""
    text = (
        "It trains one vector a layer, a tiny share of the backbone: here, at most "
        f"{TINY_PERCENTAGE:g} % with the head"
    )
    own = [one for group in files.values() for one in cells(group)]
    own = sorted((one for one in own if one.method == CAPSULE), key=lambda one: one.percentage)
    if not own:
        return Claim(text, "do not say", "no run of it")
    least, most = percentage(own[0]), percentage(own[-1])
    span = least if least == most else f"{least} to {most}"
    others = [
        f"{name} trains {statistics.fmean(ratios):,.1f} times as many"
        for name in BASELINES
        if (ratios := ratios_to(files, name))
    ]
    if own[-1].percentage <= TINY_PERCENTAGE:
        verdict = "support it"
    elif own[0].percentage > TINY_PERCENTAGE:
        verdict = "contradict it"
    else:
        verdict = "support it on some backbones or sets, contradict it on others"
    return Claim(text, verdict, "; ".join([f"{span} of the backbone, head included", *others]))


def ratios_to(files: Files, other: str) -> list[float]:
    """Another method's trainable parameters over the capsule's, set by set, backbone by backbone."""
    found = []
    for group in files.values():
        by_key = {(one.task, one.method): one.trainable_parameters for one in cells(group)}
        found += [
            value / by_key[task, CAPSULE]
            for (task, method), value in by_key.items()
            if method == other and by_key.get((task, CAPSULE))
        ]
    return found


def compared(files: Files, text: str, against: str) -> Claim:
    """The capsule against one other method, set by set."""
    pairs = all_pairs(files, against)
    if not pairs:
        return Claim(text, "do not say", f"no set with both it and {against}")
    counted = count(pairs)
    parts = {
        "support it": counted["helps"],
        "contradict it": counted["hurts"],
        "find no difference": counted["equal"],
        "leave it open": counted["undecided"] + counted["one seed"],
    }
    verdict = "; ".join(f"{words} on {listed(tasks)}" for words, tasks in parts.items() if tasks)
    evidence = "; ".join(
        f"{one.task} {signed(one.mean)}"
        + (" (one seed)" if one.low is None else f" ({interval(one)})")
        for one in pairs
    )
    return Claim(text, verdict, evidence)


def speed() -> Claim:
    """That no search was made, and where the time of a step is measured."""
    return Claim(
        "It trains faster than methods that search for a prompt length",
        "cannot say: no length was searched for",
        "what a step takes: [performance.md](performance.md#training)",
    )


def published(rows: Sequence[Row]) -> Claim:
    """Whether the paper's own backbones are among those of the runs."""
    text = "Its published scores on T5, Llama and Qwen"
    run = {row.configuration.backbone for row in rows}
    missing = [
        one.name for one in PAPER_BACKBONES if not any(one.is_run_on(backbone) for backbone in run)
    ]
    there = sorted({backbone.id for backbone in run})
    evidence = f"run on: {listed(there)}; not run on: {listed(missing)}"
    if len(missing) == len(PAPER_BACKBONES):
        return Claim(text, "cannot say", evidence)
    found = [one.name for one in PAPER_BACKBONES if one.name not in missing]
    return Claim(text, f"say something for {listed(found)}", evidence)


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


def all_pairs(files: Files, against: str) -> list[Paired]:
    """The capsule minus another method; where there are several files, the set names its own."""
    found = []
    for name, group in files.items():
        for one in paired(group, CAPSULE, against):
            task = one.task if len(files) == 1 else f"{one.task} ({name})"
            found.append(one.model_copy(update={"task": task}))
    return found


def count(pairs: Sequence[Paired]) -> dict[Verdict, list[str]]:
    """The sets of each verdict."""
    found: dict[Verdict, list[str]] = {verdict: [] for verdict in get_args(Verdict)}
    for one in pairs:
        found[one.verdict].append(one.task)
    return found


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) if names else "none"
