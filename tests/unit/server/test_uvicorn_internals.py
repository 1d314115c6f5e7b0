"""Undocumented parts of uvicorn that `uvicorn_server.py` uses: a new uvicorn without one fails here."""

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http import flow_control, httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnlog.server import log_format
from turnlog.server.uvicorn_server import PacedHttpProtocol, StoppingServer

OWN_METHODS = {"write", "on_disconnect", "run_paced"}  # public methods that override nothing


@pytest.fixture
def protocol() -> Iterator[HttpToolsProtocol]:
    config = uvicorn.Config(Starlette(), log_config=None)
    config.load()
    loop = asyncio.new_event_loop()
    yield HttpToolsProtocol(config, ServerState(), {}, loop)
    loop.close()


def own_names(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("__")}


def parse_class(cls: type) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


def attributes_of_self(cls: type) -> set[str]:
    """The names that the methods of a class use as `self.<name>` and the class does not define."""
    used = {
        node.attr
        for node in ast.walk(parse_class(cls))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return {name for name in used - own_names(cls) if not name.startswith("_")}


def assigned_attributes(cls: type) -> set[str]:
    return {
        node.attr
        for node in ast.walk(parse_class(cls))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def test_protocol_overrides_only_methods_that_uvicorn_has() -> None:
    overridden = {name for name in own_names(PacedHttpProtocol) if not name.startswith("_")} - OWN_METHODS
    assert len(overridden) >= 12
    assert [name for name in sorted(overridden) if not callable(getattr(HttpToolsProtocol, name, None))] == []


def test_protocol_uses_only_attributes_that_uvicorn_has(protocol: HttpToolsProtocol) -> None:
    used = attributes_of_self(PacedHttpProtocol)
    assert {"app", "connections", "cycle", "flow", "headers", "loop", "transport"} <= used
    assert [name for name in sorted(used) if not hasattr(protocol, name)] == []
    assert callable(protocol.config.loaded_app)


def test_uvicorn_calls_the_application_that_the_protocol_sets() -> None:
    assert "self.app" in inspect.getsource(HttpToolsProtocol.on_headers_complete)


@pytest.mark.parametrize("name", ["response_started", "response_complete"])
def test_cycle_has_the_state_of_its_response(name: str) -> None:
    assert name in assigned_attributes(RequestResponseCycle)


def test_flow_control_tells_that_writing_is_paused_and_waits() -> None:
    assert "write_paused" in assigned_attributes(flow_control.FlowControl)
    assert inspect.iscoroutinefunction(flow_control.FlowControl.drain)


def test_server_uses_only_attributes_that_uvicorn_has() -> None:
    server = uvicorn.Server(uvicorn.Config(Starlette(), log_config=None))
    used = attributes_of_self(StoppingServer) | own_names(StoppingServer) | {"capture_signals"}
    foreign = {name for name in used if not name.startswith("_")}
    assert {"handle_exit", "should_exit", "force_exit"} <= foreign
    assert [name for name in sorted(foreign) if not hasattr(server, name)] == []
    assert callable(server.config.get_loop_factory)


def test_uvicorn_logs_invalid_requests_with_the_message_that_is_dropped() -> None:
    message = "Invalid HTTP request received."
    assert message in inspect.getsource(httptools_impl)
    assert message in inspect.getsource(log_format)


def test_control_attribute_that_uvicorn_does_not_have_is_found(protocol: HttpToolsProtocol) -> None:
    class Protocol(HttpToolsProtocol):
        def on_part(self) -> object:
            return self.transport, self.part  # type: ignore[attr-defined]

    assert [name for name in sorted(attributes_of_self(Protocol)) if not hasattr(protocol, name)] == ["part"]
    assert own_names(Protocol) == {"on_part"}
    assert not hasattr(HttpToolsProtocol, "on_part")
