"""`perseid audits`: audits on workers; keys; reports are signed, verified and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perseid.cli import audit_runs, output, report_files
from perseid.cli import jobs as job_verbs

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


File = Annotated[Path, typer.Argument(metavar="FILE", help="A report, as JSON or signed.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Of `perseid audits list`.")]


@app.callback()
def group() -> None:
    """List and cancel audits on workers; sign, verify and show reports; make keys."""


@app.command(epilog="Example: perseid audits keys /etc/perseid/audits")
def keys(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Gets audit.key, audit.pub.")],
    as_json: output.Json = False,
) -> None:
    """Make a pair of Ed25519 keys: audit.key signs reports, audit.pub verifies them.

    Only its owner can read audit.key. Readers of reports need audit.pub, on a way that they trust.
    """
    from perseid.replay import signing

    made = signing.key_id(signing.new_key(folder).public_key())
    private, public = folder / signing.PRIVATE, folder / signing.PUBLIC
    if as_json:
        output.document({"key_id": made, "private": str(private), "public": str(public)})
    else:
        output.fields({"key id": made, "private": private, "public": public})


@app.command(epilog="Example: perseid audits sign audit.json --key audit.key > audit.dsse.json")
def sign(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A report as JSON.")],
    key: Annotated[Path, typer.Option("--key", help="The private key's file.")],
    _as_json: output.Json = False,
) -> None:
    """Sign a report, and print it with its signature: JSON, with or without --json."""
    from perseid.replay import signing
    from perseid.replay.reports import from_json

    text = report_files.text_of(file)
    from_json(text)
    output.lines([signing.sign(text, signing.private_key(key)).removesuffix("\n")])


@app.command(epilog="Example: perseid audits verify audit.dsse.json --key audit.pub")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A signed report.")],
    key: Annotated[
        list[Path], typer.Option("--key", help="A public key that is trusted; may be repeated.")
    ],
    as_json: output.Json = False,
) -> None:
    """Verify a signed report: exit code 0 if a key given has signed it, otherwise 1.

    The exit code is about the signature. The audit's verdict is printed.
    """
    from perseid.replay import signing
    from perseid.replay.reports import from_json

    signed = signing.verify(report_files.text_of(file), [signing.public_key(path) for path in key])
    audit = from_json(signed.report)
    found = {
        "signature": "valid",
        "key_id": signed.key_id,
        "job": audit.job,
        "epochs": f"{audit.first_epoch}-{audit.last_epoch}",
        "verdict": audit.verdict,
    }
    if as_json:
        output.document(found)
    else:
        output.fields(found)


@app.command(epilog="Example: perseid audits show audit.json --format html > audit.html")
def show(
    file: File,
    form: Annotated[
        str, typer.Option("--format", help="json, html, junit or markdown.")
    ] = "markdown",
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Verify the report first, with this key.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Print a report in another form; --json is --format json."""
    from perseid.errors import UsageError
    from perseid.replay.reports import FORMS, from_json

    form = "json" if as_json else form
    if form not in FORMS:
        raise UsageError(f"--format {form[:20]!r}: expected {', '.join(FORMS)}")
    text, signature = report_files.report_of(file, key or ())
    if signature == report_files.NOT_VERIFIED:
        output.note(f"perseid: the signature of {file} was not verified; --key verifies it")
    output.lines([FORMS[form].text(from_json(text)).removesuffix("\n")])


@app.command("list", epilog="Example: perseid audits list --job wordcount")
def every(
    job: Annotated[str | None, typer.Option("--job", help="Only those of this job.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """List the audits that workers run or have run; those that ended are kept for 30 days."""
    from perseid.jobs.operations import audits

    with job_verbs.connected(data) as cluster:
        found = [audits.document(one) for one in audits.every(cluster.registry, job)]
    if as_json:
        output.document({"audits": found})
    else:
        output.table(audit_runs.COLUMNS, map(audit_runs.row, found))


@app.command("show-run", epilog="Example: perseid audits show-run 3f0c81d2a9b4 --format html")
def show_run(
    id_: Id,
    form: Annotated[
        str | None, typer.Option("--format", help="Its report as json, html, junit or markdown.")
    ] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show keys and values of records.")
    ] = False,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Print an audit on a worker with its progress or verdict; with --format its report."""
    from perseid.errors import UsageError
    from perseid.jobs.operations import audits
    from perseid.replay.reports import FORMS

    if form is not None and form not in FORMS:
        raise UsageError(f"--format {form[:20]!r}: expected {', '.join(FORMS)}")
    with job_verbs.connected(data) as cluster:
        audit = audits.find(cluster.registry, id_).value
        if form is None:
            audit_runs.show(audit, as_json=as_json)
            return
        found = audit_runs.found(cluster, audit, values=show_values)
    output.lines([FORMS[form].text(found).removesuffix("\n")])


@app.command(epilog="Example: perseid audits cancel 3f0c81d2a9b4")
def cancel(id_: Id, data: output.Data = None, as_json: output.Json = False) -> None:
    """End an audit that a worker runs, or that waits for one."""
    from perseid.jobs.operations import audits

    with job_verbs.connected(data) as cluster:
        over = audits.cancel(cluster.registry, cluster.clock, id_, audit_runs.user())
    audit_runs.show(over, as_json=as_json)
