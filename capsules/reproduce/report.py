"""Writes committed runs up as a page of the documentation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from capsules.errors import DataError, DataFault
from capsules.reproduce.claims import Files, all_pairs, as_lines, claims, conclusion
from capsules.reproduce.insight import Insight
from capsules.reproduce.inspection import attention_image, read_insights
from capsules.reproduce.journal import read_rows
from capsules.reproduce.page import INSTANCE, section
from capsules.reproduce.plots import draw
from capsules.reproduce.record import Row
from capsules.reproduce.summary import cells
from capsules.reproduce.table import differences, layers, markdown

DOCUMENT = "results.md"
RESULTS = "results"
IMAGES = "img"
BEGIN = "<!-- generated: {name} -->"
END = "<!-- end of generated -->"
NOTHING = "Not recorded yet."


def write_report(docs: Path) -> list[Path]:
    """Bring the page and its plots up to date with the runs in `docs/results/*.jsonl`.

    Args:
        docs: folder of the page; what it says outside the generated parts stays as it is.

    Returns:
        What was written.

    Raises:
        DataError: a file holds a line that is no run, or runs of several configurations, or the
            page has no place for a part.
        OSError: the page cannot be read or written.
    """
    files, insights = read_files(docs / RESULTS), read_insights(docs / RESULTS)
    written = []
    for stem, rows in files.items():
        written += draw(cells(rows), docs / IMAGES, prefix=f"results-{stem}-")
    page = docs / DOCUMENT
    page.write_text(
        insert(page.read_text(encoding="utf-8"), parts(files, insights)), encoding="utf-8"
    )
    return [*written, page]


def read_files(folder: Path) -> dict[str, list[Row]]:
    """The runs of each file in a folder, by its name without the suffix.

    Raises:
        DataError: a line is no run, or the runs of a file cannot be compared.
    """
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows = read_rows(path)
        if len({row.configuration for row in rows}) > 1:
            raise DataError(
                f"{path} has runs of several configurations; put each into a file of its own.",
                code=DataFault.UNSUPPORTED_FORMAT,
            )
        if rows:
            found[path.stem] = rows
    return found


def parts(files: Files, insights: Mapping[str, Sequence[Insight]]) -> dict[str, str]:
    """The generated parts of the page by name."""
    rows = [row for group in files.values() for row in group]
    if not rows:
        return dict.fromkeys(("instance term", "inside", "claims", "runs"), NOTHING)
    pairs = all_pairs(files, INSTANCE)
    table = [markdown(differences(pairs))] if pairs else []
    return {
        "instance term": "\n\n".join([conclusion(pairs), *table]),
        "claims": markdown(as_lines(claims(files))),
        "inside": "\n\n".join(
            inside(stem, one) for stem, group in insights.items() for one in group
        )
        or NOTHING,
        "runs": "\n\n".join(
            f"{section(group, stem)}\n\n{images(stem)}" for stem, group in files.items()
        ),
    }


def inside(stem: str, one: Insight) -> str:
    """What was seen inside the backbone on one set."""
    return "\n\n".join(
        [
            f"### {one.task} ({stem})",
            f"Seed {one.seed}, {one.backbone}, {one.texts:,} test texts. The capsule answers "
            f"{one.accuracy:.3f} of them rightly, and {one.fixed_accuracy:.3f} where every text "
            "gets the average mean in place of its own, without training anew; "
            f"{one.same_answers:,} of the {one.texts:,} answers are the same. "
            f"{INSTANCE} answers {one.task_only_accuracy:.3f} rightly.",
            markdown(layers(one)),
            f"![{one.task} ({stem}): attention to and from the capsule]"
            f"({IMAGES}/{attention_image(stem, one.task)})",
        ]
    )


def images(stem: str) -> str:
    """The plots of a file of runs."""
    return (
        f"![{stem}: test score against trainable parameters]"
        f"({IMAGES}/results-{stem}-parameters.png)\n\n"
        f"![{stem}: seconds of training]({IMAGES}/results-{stem}-time.png)"
    )


def insert(document: str, generated: Mapping[str, str]) -> str:
    """Put each part between its marks, in place of what was there.

    Raises:
        DataError: one has no marks.
    """
    for name, text in generated.items():
        begin = BEGIN.format(name=name)
        before, found, rest = document.partition(f"{begin}\n")
        _, ended, after = rest.partition(END)
        if not found or not ended:
            raise DataError(
                f"{DOCUMENT} has no place for {name!r}; write {begin} and {END} around one, each "
                "on a line of its own.",
                code=DataFault.UNSUPPORTED_FORMAT,
            )
        document = f"{before}{begin}\n{text}\n{END}{after}"
    return document
