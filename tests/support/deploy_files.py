"""The files of `deploy/`, as data, and the `turnlog` command lines in them."""

from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml  # type: ignore[import-untyped]

from tests.support.docs_blocks import ROOT
from turnlog.cli import main
from turnlog.cli.serve import LOOPBACK, load_app

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose"
SYSTEMD = DEPLOY / "systemd"
KUBERNETES = DEPLOY / "kubernetes"
STOP_S = 5  # what a server may take to stop after its drain: open responses have 3 s


class ServeCommand(NamedTuple):
    """What a command line of `turnlog serve` asks for."""

    role: str
    log_url: str
    host: str
    port: int
    drain_s: float
    tokens: Path
    key_file: Path
    hosts: tuple[str, ...]


def read_yaml(path: Path) -> list[Any]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def parse_serve(words: list[str]) -> ServeCommand:
    """Parse the words after `turnlog` with the real command. Raise `click.UsageError` if it refuses them.

    The application must exist, and what the command refuses later must not be there: an address that others
    reach without tokens, a local log, no key.
    """
    assert words[0] == "serve"
    command = main.commands["serve"]
    with command.make_context("serve", words[1:]) as context:
        values = context.params
    for name in values["apps"]:
        load_app(name)
    assert values["role"] in ("web", "worker")
    assert values["log_url"].startswith("postgresql://")
    assert values["key_file"] is not None
    assert values["drain_s"], "a drain that is written down"
    assert values["host"] in LOOPBACK or values["tokens"]
    return ServeCommand(
        values["role"],
        values["log_url"],
        values["host"],
        values["port"],
        values["drain_s"],
        values["tokens"],
        values["key_file"],
        values["allow_host"],
    )


def refuses(words: list[str]) -> bool:
    """Return whether the command refuses these words."""
    try:
        parse_serve(words)
    except (click.UsageError, AssertionError):
        return True
    return False
