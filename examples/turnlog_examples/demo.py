"""The seven systems of `turnlog demo`: their applications, and the processes that work for three of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from turnlog import App
from turnlog_examples import assistant, broker, pipeline, shop, support, weights
from turnlog_examples.demo_office.command import standin_command
from turnlog_examples.office.team import make_app as make_office
from turnlog_examples.weights.__main__ import EXECUTE, started

PACE_S = 0.05  # a word: as fast as one reads
WORK = ("-m", "turnlog_examples.support.worker", "--attached")
AGENT = ("-m", "turnlog_examples.shop.agent_server")
AGENT_URL = "http://127.0.0.1:8000/agent"


def make_apps(
    folder: Path | str, agent_url: str = AGENT_URL, pace_s: float = PACE_S, model: str | None = None
) -> dict[str, App]:
    """All seven, by name. A model of Anthropic's speaks for itself; the process of the office is played.

    The agent of the shop answers at `agent_url`.
    """
    named = f"anthropic:{model}" if model else None
    apps = (
        assistant.make_app(pace_s, model=assistant.searching(model) if model else None),
        pipeline.make_app(pace_s, model=named),
        weights.make_app(pace_s, model=named),
        broker.make_app(pace_s, named),
        make_office(Path(folder) / "office", standin_command(pace_s / 2), demo_mode=True),
        support.make_app(),
        shop.make_app(agent_url),
    )
    return {app.name: app for app in apps}


@contextmanager
def executing(
    url: str, folder: Path | str, token: str, agent_socket: socket, pace_s: float = PACE_S
) -> Iterator[None]:
    """The executor of the weigh-ins, the worker of the support, the agent of the shop: a process for each.

    `agent_socket` is that of the agent's URL, and listens already.
    """
    agent_fd = agent_socket.fileno()
    table = ("--db", f"{folder}/weights.db")
    with (
        started(*EXECUTE, "--url", url, *table, token=token),
        started(*WORK, "--url", url, "--pace", str(pace_s), token=token),
        started(*AGENT, "--fd", str(agent_fd), token="", pass_fds=[agent_fd]),
    ):
        yield
