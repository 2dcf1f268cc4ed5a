"""What the commands look like. What does their work is imported only once one is called."""

import io
import sys
from collections.abc import Iterable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capsules.cli.app import app as capsule_files
from capsules.cli.failure import MISUSE, Commands, UsageError
from capsules.cli.options import Json
from capsules.cli.output import Output, say
from service.cli.jobs.app import app as jobs
from service.cli.options import DEFAULT_TIMEOUT_S, DEFAULT_URL, Timeout, Url, setting

if TYPE_CHECKING:
    from service.settings import Settings

SERVER = "The server"
CLIENT = "Talking to a server"

DataDir = Annotated[
    str | None,
    setting("data_dir", "Folder of the database; made where it is missing.", metavar="DIR"),
]
Backbone = Annotated[
    str | None, setting("backbone", "The frozen backbone: `embedded`, a local folder or a hub id.")
]
Device = Annotated[
    str | None, setting("device", "Where it runs: `auto`, `cpu`, `cuda` or `cuda:N`.")
]
TrainThreads = Annotated[
    str | None,
    setting(
        "train_threads", "Threads of one training job; by default half of the cores.", metavar="N"
    ),
]
TrainMemory = Annotated[
    str | None,
    setting(
        "train_memory",
        "Most memory that a worker may allocate; by default whatever the machine has.",
        metavar="SIZE",
    ),
]
LogLevel = Annotated[
    str | None, setting("log_level", "Least severe log lines to write.", metavar="LEVEL")
]
LogFormat = Annotated[
    str | None,
    setting("log_format", "`json`, a line an event, or `console`, for people.", metavar="FORMAT"),
]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command that the process was started as."""
    for stream in (sys.stdout, sys.stderr):
        # Labels may hold what the terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="capsule")


def show_version(wanted: bool) -> None:
    """Show the version and leave."""
    if wanted:
        typer.echo(f"capsule {installed_version('capsule-server')}")
        raise typer.Exit


def complete_task(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Task names, for the shell."""
    from service.cli.completion import task_names

    return task_names(context, incomplete)


@app.callback()
def capsule(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=show_version, help="Show the version."),
    ] = False,
) -> None:
    """Serve and train capsules: many text classification tasks on one frozen transformer."""


@app.command(
    rich_help_panel=SERVER,
    epilog="Every setting has an environment variable; a flag wins over it.",
)
def serve(
    host: Annotated[
        str | None, setting("host", "Address or host name to listen on.", metavar="HOST")
    ] = None,
    port: Annotated[
        str | None, setting("port", "Port to listen on; 0 takes a free one.", metavar="PORT")
    ] = None,
    data_dir: DataDir = None,
    backbone: Backbone = None,
    device: Device = None,
    dtype: Annotated[
        str | None,
        setting("dtype", "Its number format; `auto` is bfloat16 on CUDA and float32 on a CPU."),
    ] = None,
    executor: Annotated[
        str | None,
        setting(
            "executor",
            "What runs it: `onnxruntime`, `torch`, or `auto`, which is onnxruntime on a CPU in "
            "float32, where its answers are torch's, and torch everywhere else.",
        ),
    ] = None,
    quantization: Annotated[
        str | None,
        setting(
            "quantization",
            "`int8` computes matrix products on 8-bit integers: faster, less exact; with "
            "onnxruntime only.",
        ),
    ] = None,
    threads: Annotated[
        str | None,
        setting(
            "threads", "Threads of one forward pass; by default one for each core.", metavar="N"
        ),
    ] = None,
    timeout_ms: Annotated[
        str | None,
        setting(
            "timeout_ms",
            "Time limit of a classification, and the most its `timeout_ms` may ask for.",
            metavar="N",
        ),
    ] = None,
    bank_slots: Annotated[
        str | None,
        setting(
            "bank_slots",
            "Capsules held on the device; the others wait in memory.",
            metavar="N",
        ),
    ] = None,
    load_zoo: Annotated[
        bool | None,
        setting(
            "load_zoo",
            "Load the shipped capsules on the first start.",
            "--load-zoo/--no-load-zoo",
        ),
    ] = None,
    train: Annotated[
        bool | None,
        setting(
            "train",
            "Start a worker for training jobs along with the server.",
            "--train/--no-train",
        ),
    ] = None,
    train_threads: TrainThreads = None,
    train_memory: TrainMemory = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Serve capsules over HTTP until interrupted."""
    settings = settings_from(
        host=host,
        port=port,
        data_dir=data_dir,
        backbone=backbone,
        device=device,
        dtype=dtype,
        executor=executor,
        quantization=quantization,
        threads=threads,
        timeout_ms=timeout_ms,
        bank_slots=bank_slots,
        load_zoo=load_zoo,
        train=train,
        train_threads=train_threads,
        train_memory=train_memory,
        log_level=log_level,
        log_format=log_format,
    )
    # Only now: it takes seconds, and a misspelt flag should not.
    from service.server import serve as serve_until_stopped

    raise typer.Exit(serve_until_stopped(settings))


@app.command(
    rich_help_panel=SERVER,
    epilog="Every setting has an environment variable; a flag wins over it.",
)
def worker(
    data_dir: DataDir = None,
    backbone: Backbone = None,
    device: Device = None,
    train_threads: TrainThreads = None,
    train_concurrency: Annotated[
        str | None,
        setting(
            "train_concurrency",
            "Training jobs that one worker runs at the same time.",
            metavar="N",
        ),
    ] = None,
    train_nice: Annotated[
        str | None,
        setting(
            "train_nice",
            "How far a worker steps back from the CPU behind the server, from 0 to 19.",
            metavar="N",
        ),
    ] = None,
    train_memory: TrainMemory = None,
    train_database: Annotated[
        str | None,
        setting(
            "train_database",
            "Where workers keep the steps of their jobs: an URL `postgresql://...` or "
            "`sqlite:///...`; by default a file in the data folder.",
            metavar="URL",
        ),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Train queued jobs until interrupted; `capsule serve` starts one unless it is told not to."""
    settings = settings_from(
        data_dir=data_dir,
        backbone=backbone,
        device=device,
        train_threads=train_threads,
        train_concurrency=train_concurrency,
        train_nice=train_nice,
        train_memory=train_memory,
        train_database=train_database,
        log_level=log_level,
        log_format=log_format,
    )
    from service.worker.process import run

    run(settings, supervised=supervised)


def settings_from(**flags: object) -> "Settings":
    """The settings, or the end of the command with a line for each that cannot be used."""
    from service.settings import SettingsError, load_settings

    try:
        return load_settings(**flags)
    except SettingsError as error:
        for problem in error.problems:
            say(f"error [invalid_setting]: {problem}", style="red")
        raise typer.Exit(MISUSE) from error


@app.command(rich_help_panel=CLIENT)
def push(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, readable=True, help="Capsule files."
        ),
    ],
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Upload capsule files; each becomes the newest version of its task."""
    from service.cli.client import Client
    from service.cli.push import run

    with Client(url, timeout=timeout) as client:
        run(client, files, Output(as_json=as_json))


@app.command(name="list", rich_help_panel=CLIENT)
def list_command(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", autocompletion=complete_task, help="List this task's versions."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """List the tasks of a server, or the versions of one."""
    from service.cli.client import Client
    from service.cli.listing import list_tasks, list_versions

    output = Output(as_json=as_json)
    with Client(url, timeout=timeout) as client:
        if task is None:
            list_tasks(client, output)
        else:
            list_versions(client, task, output)


@app.command(rich_help_panel=CLIENT)
def classify(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            autocompletion=complete_task,
            help="A task, or task@3 for a version, or task:prod for an alias.",
        ),
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts; without any, the lines of standard input."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=TEXT",
            help="One text by its named inputs; repeat it for each.",
        ),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Each text is JSON: a string, or an object of named inputs.",
        ),
    ] = False,
    top_k: Annotated[
        int, typer.Option(min=0, help="Labels for each text, best first; 0 for all.")
    ] = 1,
    truncate: Annotated[
        bool, typer.Option(help="Cut texts that are too long for the task, or refuse them.")
    ] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Most texts of one request.")] = 256,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write a line of JSON for each text, for programs.")
    ] = False,
) -> None:
    """Classify texts, or the lines of standard input, in their order."""
    from capsules.data.schema import is_unicode
    from service.cli.classify import Question, run
    from service.cli.client import Client
    from service.cli.texts import Item, inputs_from, items_from, lines_of

    if inputs and (texts or json_lines):
        raise UsageError("--input gives one text; leave out TEXT and --json-lines.")
    if not is_unicode(task):
        raise UsageError(f"{task!r} is no task's name.", code="invalid_task_name")
    items: Iterable[Item]
    if inputs:
        items = [inputs_from(inputs)]
    elif texts:
        items = items_from(texts, as_json=json_lines)
    else:
        if sys.stdin.isatty():
            say("Reading texts from the terminal, one a line; end with Ctrl-D.")
        items = items_from(lines_of(sys.stdin.buffer), as_json=json_lines)
    question = Question(task=task, top_k=top_k or None, truncate=truncate)
    with Client(url, timeout=timeout) as client:
        run(client, question, items, Output(as_json=as_json), batch_size=batch_size)


@app.command(rich_help_panel=CLIENT)
def rm(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="TASK[@VERSION]",
            autocompletion=complete_task,
            help="A task with all its versions, or one version.",
        ),
    ],
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Delete a version of a task, or the whole task. Deleting the newest rolls back to the last."""
    from service.cli.client import Client
    from service.cli.remove import run

    with Client(url, timeout=timeout) as client:
        run(client, reference, Output(as_json=as_json))


app.add_typer(jobs, name="jobs", rich_help_panel=CLIENT)
app.add_typer(capsule_files)
