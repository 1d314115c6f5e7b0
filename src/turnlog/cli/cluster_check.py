"""`turnlog cluster-check`: whether a PostgreSQL is set up so that a cluster loses nothing."""

import click

from turnlog.errors import CallerError

MARKS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


@click.command(
    "cluster-check",
    short_help="Check the set-up of a PostgreSQL.",
    epilog="Example: turnlog cluster-check postgresql://turnlog@db1,db2/turnlog",
)
@click.argument("url")
@click.pass_context
def cluster_check(context: click.Context, url: str) -> None:
    """Check a PostgreSQL before servers use it: version, quorum, fsync, checksums, rights, connections,
    clocks, NOTIFY and poolers.

    It changes nothing. The exit code is 1 if events could be lost or damaged, or if servers could not work.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise CallerError("expected a URL like postgresql://user@host/database")
    try:
        from turnlog.log.postgres.inspection import inspect_engine
    except ImportError:
        raise CallerError("pip install 'turnlog[postgres]' to check a PostgreSQL") from None

    findings = inspect_engine(url)
    for finding in findings:
        click.echo(f"{MARKS[finding.level]}  {finding.subject}: {finding.text}")
        if finding.advice:
            click.echo(f"{'':9}{finding.advice}")
    if any(finding.level == "error" for finding in findings):
        context.exit(1)


COMMANDS = [cluster_check]
