"""`turnlog` without the bounds on request heads: what the tests of these bounds are compared with."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnlog.cli import main
from turnlog.server.uvicorn_server import PacedHttpProtocol

if __name__ == "__main__":
    for name in (
        "data_received",
        "send_400_response",
        "on_url",
        "on_header",
        "on_headers_complete",
        "on_body",
    ):
        setattr(PacedHttpProtocol, name, getattr(HttpToolsProtocol, name))
    main()
