"""What the commands look like. What does their work is imported only once one is called."""

from pathlib import Path
from typing import Annotated

import typer

from capsules.cli.failure import Commands
from capsules.cli.options import (
    Backbone,
    DataFile,
    Device,
    ExistingFile,
    Json,
    LabelField,
    MaxBadRows,
    Threads,
)
from capsules.cli.output import Output

PANEL = "Capsule files, without a server"

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command(rich_help_panel=PANEL)
def train(
    data: DataFile,
    task: Annotated[str, typer.Option(help="Name of the task.", show_default=False)],
    validation: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="Rows to choose the best epoch by; by default a stratified part of DATA.",
            show_default=False,
        ),
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option(help="How large that part is, where there is no --validation.")
    ] = 0.1,
    test: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="Rows to measure the finished capsule on.",
            show_default=False,
        ),
    ] = None,
    template: Annotated[
        str, typer.Option(help="Turns a row's inputs into the text; names the fields of DATA.")
    ] = "{text}",
    label_field: LabelField = "label",
    description: Annotated[str, typer.Option(help="Of the task, for people.")] = "",
    variant: Annotated[
        str,
        typer.Option(
            help="How capsule tokens are formed: addition, prepending, extraction, projection, "
            "task-only or instance-only."
        ),
    ] = "addition",
    length: Annotated[int, typer.Option(help="Capsule tokens per layer.")] = 1,
    layers: Annotated[
        str,
        typer.Option(
            help="Which layers the capsule enters: all, input, first-half, latter-half, odd, or "
            "numbers from 1 such as 1,3."
        ),
    ] = "all",
    word: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=WORD",
            help="The word that stands for a label, on backbones that answer in words; may be "
            "repeated. By default each label is its own word.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Most passes over the rows.")] = 50,
    patience: Annotated[
        int, typer.Option(help="Stop after this many epochs without a better accuracy.")
    ] = 5,
    batch_size: Annotated[int, typer.Option(help="Rows of one step.")] = 32,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="By default the backbone family's own.", show_default=False),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Longest text in tokens, the capsule's included; by default 512, or what the "
            "backbone takes.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the start and the order.")] = 0,
    max_bad_rows: MaxBadRows = None,
    backbone: Backbone = "embedded",
    device: Device = "auto",
    threads: Threads = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The capsule file; by default TASK.safetensors in this folder.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Where an unfinished run is kept, to go on from; by default beside the output.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a capsule on labelled rows.

    An interrupted run goes on where it was when the command is repeated.
    """
    from capsules.cli.train import Training, run

    request = Training(
        data=data,
        validation=validation,
        validation_fraction=validation_fraction,
        test=test,
        label_field=label_field,
        max_bad_rows=max_bad_rows,
        backbone=backbone,
        device=device,
        threads=threads,
        output=output,
        checkpoint=checkpoint,
        options={
            "task": task,
            "description": description,
            "template": template,
            "variant": variant,
            "length": length,
            "layers": layers,
            "verbalizers": word,
            "epochs": epochs,
            "patience": patience,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "max_length": max_length,
            "seed": seed,
        },
    )
    run(request, Output(as_json=as_json))


@app.command(rich_help_panel=PANEL)
def evaluate(
    file: ExistingFile,
    data: DataFile,
    label_field: LabelField = "label",
    max_bad_rows: MaxBadRows = None,
    backbone: Backbone = "embedded",
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure a capsule on labelled rows: accuracy, macro F1, each class, confusions."""
    from capsules.cli.evaluate import Evaluation, run

    request = Evaluation(
        file=file,
        data=data,
        label_field=label_field,
        max_bad_rows=max_bad_rows,
        backbone=backbone,
        device=device,
        threads=threads,
    )
    run(request, Output(as_json=as_json))


@app.command(rich_help_panel=PANEL)
def inspect(file: ExistingFile, as_json: Json = False) -> None:
    """Check a capsule file and show its manifest and tensors."""
    from capsules.cli.inspect import run

    run(file, Output(as_json=as_json))


@app.command(rich_help_panel=PANEL)
def reproduce(
    suite: Annotated[
        str, typer.Option(help="Which sets: superglue, csqa, or single for sets of single texts.")
    ] = "superglue",
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="SET,...",
            help="Only these sets of the suite; single takes any set that DATA has.",
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD,...",
            help="Only these: capsule, prepending, extraction, projection, task-only, "
            "instance-only, linear-head, prompt-tuning, p-tuning-v2, lora.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0.")] = 3,
    epochs: Annotated[int, typer.Option(help="Most passes over the rows.")] = 50,
    patience: Annotated[
        int, typer.Option(help="Stop after this many epochs without a better accuracy.")
    ] = 5,
    batch_size: Annotated[int, typer.Option(help="Rows of one step.")] = 32,
    learning_rates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[METHOD=]RATE,...",
            help="Choose the best of these by validation, for all methods or for one; may be "
            "repeated. By default one rate for each method.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[int, typer.Option(help="Capsule tokens per layer.")] = 1,
    layers: Annotated[
        str,
        typer.Option(
            help="Which layers capsules enter: all, input, first-half, latter-half, odd, or "
            "numbers from 1 such as 1,3."
        ),
    ] = "all",
    max_length: Annotated[
        int,
        typer.Option(help="Longest text in tokens, what a method adds included."),
    ] = 512,
    data: Annotated[
        Path,
        typer.Option(
            help="Holds a folder for each set with train and validation files, .jsonl or .jsonl.gz."
        ),
    ] = Path("../shared/data"),
    backbone: Backbone = "embedded",
    device: Device = "auto",
    threads: Threads = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of runs, tables and plots."),
    ] = Path("build/reproduce"),
    plots: Annotated[bool, typer.Option(help="Draw plots, which needs matplotlib.")] = True,
    as_json: Json = False,
) -> None:
    """Rerun the published comparisons: every method on every set with every seed.

    An interrupted comparison goes on where it was when the command is repeated; more seeds, sets
    and methods can be added to a folder later.
    """
    from capsules.cli.reproduce import Reproduction, run

    request = Reproduction(
        suite=suite,
        tasks=tasks,
        methods=methods,
        seeds=seeds,
        learning_rates=learning_rates or (),
        data=data,
        backbone=backbone,
        device=device,
        threads=threads,
        folder=output,
        plots=plots,
        settings={
            "epochs": epochs,
            "patience": patience,
            "batch_size": batch_size,
            "length": length,
            "layers": layers,
            "max_length": max_length,
        },
    )
    run(request, Output(as_json=as_json))
