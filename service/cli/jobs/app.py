"""What the commands of jobs look like. What does their work is imported only once one is called."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capsules.cli.failure import Commands
from capsules.cli.options import Json
from capsules.cli.output import Output
from service.cli.options import DEFAULT_TIMEOUT_S, DEFAULT_URL, Timeout, Url

OPTIONS = "What to train"
"""Panel of the options that make up a job's spec."""

SUBMIT_TIMEOUT_S = 600.0
"""Of a submission, which is answered once all rows have been checked: minutes for a million."""

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train capsules on a server: submit rows, follow the job, stop it, take it up again.",
)


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs, for the shell."""
    from service.cli.completion import job_ids

    return job_ids(context, incomplete)


JobId = Annotated[
    str, typer.Argument(metavar="JOB", autocompletion=complete_job, help="Id of a job.")
]
Silence = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Give up once nothing has been heard of the server for so long.",
    ),
]


def rows_option(help_text: str) -> Any:
    """The option of a file of labelled rows."""
    return typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help=help_text,
        show_default=False,
    )


def optional(help_text: str, metavar: str | None = None) -> Any:
    """An option of the job that the server has a default for."""
    return typer.Option(
        metavar=metavar, help=help_text, show_default=False, rich_help_panel=OPTIONS
    )


@app.command()
def submit(
    train: Annotated[
        Path,
        rows_option("Labelled rows to learn from: .jsonl, .csv or .tsv, plain or gzipped."),
    ],
    task: Annotated[str, typer.Option(help="Name of the task.", show_default=False)],
    validation: Annotated[
        Path | None,
        rows_option(
            "Rows to choose the best epoch and the served version by; by default a part of the "
            "training rows."
        ),
    ] = None,
    test: Annotated[Path | None, rows_option("Rows to measure the finished capsule on.")] = None,
    validation_fraction: Annotated[
        float | None, optional("How large the part is, without --validation; by default 0.1.")
    ] = None,
    template: Annotated[
        str | None,
        optional("Turns a row's inputs into the text; names the fields. By default {text}."),
    ] = None,
    label_field: Annotated[
        str | None, optional("Key or column that holds the label; by default label.")
    ] = None,
    labels: Annotated[
        str | None,
        optional(
            "The labels in the order to keep, as in a line of CSV; by default those of the "
            "training rows, sorted.",
            "LABEL,...",
        ),
    ] = None,
    word: Annotated[
        list[str] | None,
        optional(
            "The word that stands for a label, on backbones that answer in words; may be "
            "repeated. By default each label is its own word.",
            "LABEL=WORD",
        ),
    ] = None,
    max_bad_rows: Annotated[
        str | None,
        optional(
            "Rows of a file that may be unusable: a count (5) or a fraction (0.02); by default "
            "20 or 1 %, whichever is more, and never more than a quarter.",
            "N",
        ),
    ] = None,
    variant: Annotated[
        str | None,
        optional(
            "How capsule tokens are formed: addition, prepending, extraction, projection, "
            "task-only or instance-only; by default addition."
        ),
    ] = None,
    length: Annotated[int | None, optional("Capsule tokens per layer; by default 1.")] = None,
    layers: Annotated[
        str | None,
        optional(
            "Which layers the capsule enters: all, input, first-half, latter-half, odd, or "
            "numbers from 1 such as 1,3; by default all."
        ),
    ] = None,
    epochs: Annotated[int | None, optional("Most passes over the rows; by default 50.")] = None,
    patience: Annotated[
        int | None,
        optional("Stop after this many epochs without a better accuracy; by default 5."),
    ] = None,
    batch_size: Annotated[int | None, optional("Rows of one step; by default 32.")] = None,
    learning_rate: Annotated[
        float | None, optional("By default the backbone family's own.")
    ] = None,
    max_length: Annotated[
        int | None,
        optional(
            "Longest text in tokens, the capsule's included; by default 512, or what the "
            "backbone takes."
        ),
    ] = None,
    seed: Annotated[
        int | None, optional("Of the split, the start and the order; by default 0.")
    ] = None,
    description: Annotated[str | None, optional("Of the task, for people.")] = None,
    activate: Annotated[
        bool | None,
        typer.Option(
            "--activate/--no-activate",
            help="Serve the new version under the task's bare name if it is good enough, or only "
            "under its number; by default the former.",
            show_default=False,
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        optional("What decides whether it is: accuracy or macro_f1; by default accuracy."),
    ] = None,
    min_metric: Annotated[
        float | None,
        optional(
            "The least that is good enough; by default better than the version now served, on "
            "the same validation rows."
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        optional("A note of your own on the job; may be repeated.", "KEY=VALUE"),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The server takes one submission under it, however often this is repeated; by "
            "default a new one.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Then follow the job, as `capsule jobs watch` does.")
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = SUBMIT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Submit labelled rows to be trained on, and write the job's id."""
    from service.cli.client import Client
    from service.cli.jobs.spec import spec_from
    from service.cli.jobs.submit import Submission, run

    submission = Submission(
        spec=spec_from(
            {
                "task": task,
                "description": description,
                "template": template,
                "labels": labels,
                "label_field": label_field,
                "verbalizers": word,
                "variant": variant,
                "length": length,
                "layers": layers,
                "epochs": epochs,
                "patience": patience,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "max_length": max_length,
                "seed": seed,
                "validation_fraction": validation_fraction,
                "max_bad_rows": max_bad_rows,
                "activate": activate,
                "metric": metric,
                "min_metric": min_metric,
                "metadata": metadata,
            }
        ),
        files={"train": train, "validation": validation, "test": test},
        key=idempotency_key,
    )
    with Client(url, timeout=timeout) as client:
        run(client, submission, Output(as_json=as_json), watch=watch)


@app.command(name="list")
def list_command(
    task: Annotated[
        str | None, typer.Option(help="Only jobs of this task.", show_default=False)
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only jobs that are validating_files, queued, running, succeeded, failed or "
            "cancelled.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most jobs to list; 0 for all.")] = 20,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    from service.cli.client import Client
    from service.cli.jobs.listing import run

    with Client(url, timeout=timeout) as client:
        run(client, Output(as_json=as_json), task=task, status=status, limit=limit or None)


@app.command()
def show(
    job: JobId,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Show all that is known of a job: its rows, its epochs, what came of it."""
    from service.cli.client import Client
    from service.cli.jobs.show import run

    with Client(url, timeout=timeout) as client:
        run(client, job, Output(as_json=as_json))


@app.command()
def watch(
    job: JobId,
    url: Url = DEFAULT_URL,
    timeout: Silence = DEFAULT_TIMEOUT_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write a line of JSON for each event, for programs.")
    ] = False,
) -> None:
    """Follow a job until it ends. Ctrl-C ends the watching, not the job."""
    from service.cli.client import Client
    from service.cli.jobs.watch import run

    with Client(url, timeout=timeout) as client:
        run(client, job, Output(as_json=as_json))


@app.command()
def cancel(
    job: JobId,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Cancel a job; its finished epochs are kept, so that it can be resumed."""
    from service.cli.client import Client
    from service.cli.jobs.change import cancel as run

    with Client(url, timeout=timeout) as client:
        run(client, job, Output(as_json=as_json))


@app.command()
def resume(
    job: JobId,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Queue a failed or cancelled job again; it goes on after its last finished epoch."""
    from service.cli.client import Client
    from service.cli.jobs.change import resume as run

    with Client(url, timeout=timeout) as client:
        run(client, job, Output(as_json=as_json))


@app.command()
def rm(
    job: JobId,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Delete an ended job with its rows and events; a version that came of it stays."""
    from service.cli.client import Client
    from service.cli.jobs.change import remove

    with Client(url, timeout=timeout) as client:
        remove(client, job, Output(as_json=as_json))
