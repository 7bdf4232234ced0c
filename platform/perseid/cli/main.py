"""The `perseid` command: joins the verbs and turns errors into exit codes.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 refused (the message has what to type instead). An
error of perseid is shown as its text; only a defect of perseid itself shows a traceback.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from perseid.cli import (
    audits,
    backup,
    chaos,
    checkpoint,
    cluster,
    decisions,
    demo,
    dlq,
    doctor,
    explain,
    follow,
    jobs,
    logs,
    output,
    plan,
    rebalance,
    replay,
    restart,
    state,
    status,
    tokens,
    topics,
    txn,
)
from perseid.embedded.paths import repository
from perseid.errors import PerseidError, RefusedError, exit_code

app = typer.Typer(
    name="perseid",
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich costs 0.1 s at every start
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as installed

        output.lines([f"perseid {installed('perseid')}"])
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print perseid's version."
        ),
    ] = False,
) -> None:
    """Streaming jobs in Python over Kafka and Spark, exactly once."""


app.command("up", epilog="Example: perseid up --workers 3")(cluster.up)
app.command("down", epilog="Example: perseid down --purge")(cluster.down)
app.command("backup", epilog="Example: perseid backup backups/monday")(backup.backup)
app.command("restore", epilog="Example: perseid restore backups/monday --dry-run")(backup.restore)
app.command("restart", epilog="Example: perseid restart w1 --dry-run")(restart.restart)
app.command("status", epilog="Example: perseid status --json")(status.status)
app.command("init", epilog="Example: perseid init my-job")(jobs.init)
app.command("demo", epilog="Example: perseid demo --records 300000 --kill worker")(demo.demo)
app.add_typer(jobs.app, name="jobs", help="Apply, show, start and stop jobs.")
app.command(
    "follow", epilog="Example: perseid follow --repo https://git.example/team/jobs.git --ref main"
)(follow.follow)
app.command("checkpoint", epilog="Example: perseid checkpoint wordcount --timeout 30")(
    checkpoint.checkpoint
)
app.command("rebalance", epilog="Example: perseid rebalance wordcount --dry-run")(
    rebalance.rebalance
)
app.command("replay", epilog="Example: perseid replay wordcount --last 1h")(replay.replay)
app.command("explain", epilog="Example: perseid explain word-counts:0:120")(explain.explain)
app.command("state", epilog="Example: perseid state wordcount counts --key the")(state.state)
app.command("logs", epilog="Example: perseid logs wordcount -f")(logs.logs)
app.add_typer(topics.app, name="topics", help="List, create, read and write topics.")
app.add_typer(dlq.app, name="dlq", help="List, show and redrive dead letters.")
app.add_typer(txn.app, name="txn", help="List and abort open transactions.")
app.command("doctor", epilog="Example: perseid doctor --json")(doctor.doctor)
app.add_typer(
    decisions.app, name="decisions", help="List and replay what leading coordinators decided."
)
app.add_typer(
    audits.app, name="audits", help="Audits on workers; sign, verify, show reports; make keys."
)
app.add_typer(tokens.app, name="tokens", help="Make tokens for the coordinator's HTTP API.")
app.add_typer(chaos.app, name="chaos", help="Break the embedded cluster and see it heal.")
app.add_typer(plan.app, name="plan", help="Ask the planners: replication, recovery, thresholds.")

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _replace_by(module: str, arguments: list[str]) -> None:
    # exec, not a child: signals and exit codes are then the process's own.
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


@app.command("coordinator", context_settings=_PASS_ON)
def coordinator(context: typer.Context) -> None:
    """Run one coordinator in the foreground (see `perseid coordinator --help`)."""
    _replace_by("perseid.coordinator", context.args)


@app.command("worker", context_settings=_PASS_ON)
def worker(context: typer.Context) -> None:
    """Run one worker in the foreground (see `perseid worker --help`)."""
    if not {"-h", "--help"} & set(context.args):
        from perseid.embedded.foreground import environment

        os.environ.update(environment(output.note))
    _replace_by("perseid.worker", context.args)


@app.command("bench", context_settings=_PASS_ON)
def bench(context: typer.Context) -> None:
    """Measure perseid and its peers (see `perseid bench --help`)."""
    raise typer.Exit(_of_checkout("bench", "tests/benchmarks", "run").run(context.args))


@app.command("test", context_settings=_PASS_ON)
def test(context: typer.Context) -> None:
    """Run the tests; without options all that CI runs (see `perseid test --help`)."""
    raise typer.Exit(_of_checkout("test", "tests", "support.checks").run(context.args))


def _of_checkout(verb: str, folder: str, module: str) -> Any:
    """The module in a folder of the repository that has the verb."""
    root = repository()
    if root is None:
        raise RefusedError(
            f"perseid {verb}: expected a checkout, found an installed package, which has no "
            f"{folder}; clone the repository and type `./perseid {verb}` there"
        )
    sys.path.insert(0, str(root / folder))
    return import_module(module)


@app.command("version", epilog="Example: perseid version --json")
def version(as_json: output.Json = False) -> None:
    """Print the versions of perseid and of the parts that it runs."""
    from importlib.metadata import version as installed

    from perseid.records.version import PROTOCOL

    parts = {name: installed(name) for name in ("perseid", "pyspark", "confluent-kafka", "pyarrow")}
    parts["python"] = sys.version.split()[0]
    parts["protocol"] = str(PROTOCOL)
    if as_json:
        output.document(parts)
    else:
        output.fields(parts)


def run(arguments: list[str], commands: typer.Typer = app, name: str = "perseid") -> int:
    """Runs one command line and returns its exit code."""
    as_json = "--json" in arguments
    try:
        result = commands(arguments or ["--help"], prog_name=name, standalone_mode=False)
    except PerseidError as error:
        output.error(type(error).__name__, str(error), as_json=as_json)
        return exit_code(error)
    except typer.TyperException as error:
        output.error("UsageError", _usage_text(error), as_json=as_json)
        return 2
    except typer.Abort:
        output.note("perseid: stopped")
        return 1
    except BrokenPipeError:
        # The reader is gone (`perseid logs | head`); what is still buffered has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


def _usage_text(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    return f"{text} (try `{context.command_path} --help`)" if context is not None else text


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
