"""`turnlog serve` whose peers are given up sooner: `python -m tests.e2e.stream_server STALL_S serve ...`."""

import importlib
import socket
import sys

from turnlog.cli import main


def impatient(stall_s: float) -> None:
    """Let every listening socket give up its peers after this time, whatever the command asks for."""
    serving = importlib.import_module("turnlog.server.uvicorn_server")
    listen = serving.listen

    def listening(host: str, port: int, **_: float) -> socket.socket:
        bound: socket.socket = listen(host, port, stall_s=stall_s)
        return bound

    serving.__dict__["listen"] = listening


if __name__ == "__main__":
    impatient(float(sys.argv.pop(1)))
    main()
