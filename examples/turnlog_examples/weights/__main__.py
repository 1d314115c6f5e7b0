"""Weights to try out: the server and the executor, each in its process, with one token, until Ctrl+C."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

STOP_S = 5.0
SERVE = ("-c", "import turnlog.cli; turnlog.cli.main()", "serve", "turnlog_examples.weights:app")
EXECUTE = ("-m", "turnlog_examples.weights.executor", "--attached")


@contextmanager
def started(
    *command: str, token: str, stdout: int | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is stopped at the end."""
    env = os.environ | {"TURNLOG_TOKEN": token}
    process = subprocess.Popen(
        [sys.executable, *command],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=stdout,
        pass_fds=pass_fds,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def try_out(folder: Path, port: int, token: str) -> int:
    """Run both until the server ends; its exit code."""
    log = ("--log", f"sqlite:///{folder}/log.db", "--port", str(port))
    with started(*SERVE, *log, token=token, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        with server.stdout:
            first = server.stdout.readline()
            click.echo(first + server.stdout.readline(), nl=False)
            url = first.split()[3] if first else ""
            if not url:
                return server.wait()
            table = ("--url", url, "--db", str(folder / "weights.db"))
            with started(*EXECUTE, *table, token=token):
                return server.wait()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; a free one if not given.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to keep everything; nowhere if not given."
)
def main(port: int, folder: Path | None) -> None:
    """Keep weigh-ins: open the link, and tell your weight."""
    token = os.environ.get("TURNLOG_TOKEN") or secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(prefix="turnlog-weights-") as passing:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            sys.exit(try_out(folder or Path(passing), port, token))
        except KeyboardInterrupt:
            click.echo()


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.weights")
