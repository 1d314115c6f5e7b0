"""Lines of a Claude CLI process from vectors, what a parser makes of them, and the laws it keeps."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from turnlog.events import CORE, Catalog, EventDraft, ParseReject, decode_envelope, encode_envelope
from turnlog.parse.claude.lines import CLAUDE_CLI, Line
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.state.tree import Tree
from turnlog.team.events import TEAM

FOLDER = Path(__file__).parents[1] / "vectors" / "claude_cli"
VECTORS: list[dict[str, Any]] = [
    vector for path in sorted(FOLDER.glob("*.json")) for vector in json.loads(path.read_text())["vectors"]
]
CATALOG = Catalog(CORE, TEAM, CLAUDE_CLI)


def counting() -> Callable[[str], str]:
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}{counts[prefix]}"

    return new_id


def parser_of(vector: dict[str, Any]) -> CliParser:
    parser = CliParser(counting())
    for uuid, asked in vector.get("asked", {}).items():
        parser.expect(uuid, SentMessage(**asked))
    return parser


def bytes_of(lines: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def run(vector: dict[str, Any], pieces: Iterable[bytes]) -> list[EventDraft]:
    parser = parser_of(vector)
    return [said for piece in pieces for said in parser.feed(piece)] + parser.flush()


def shown(said: EventDraft) -> dict[str, Any]:
    """An event as it stands in a vector."""
    payload, scope = said.payload, said.scope
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    if isinstance(payload, ParseReject):
        fields = {name: fields[name] for name in ("reason", "name") if name in fields}
    if isinstance(payload, Line):
        fields = {"kind": payload.kind}
    parts = (scope.trace_id, scope.agent_id, scope.agent_name, scope.depth, scope.channel)
    who = "/".join(str(part) for part in parts if part is not None) or "nobody"
    return {"who": who, "from": said.origin, "type": CATALOG.get_type_name(type(payload)), **fields}


def types(saids: Iterable[EventDraft]) -> list[str]:
    return [CATALOG.get_type_name(type(said.payload)) for said in saids]


def fold_tree(saids: list[EventDraft]) -> Tree:
    """What is open after these events."""
    tree = Tree()
    for seq, said in enumerate(saids):
        event = CATALOG.build_event(said.payload, id=f"evt_{seq}", origin=said.origin, scope=said.scope)
        envelope = decode_envelope(encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=0))
        tree.apply(envelope, event.payload)
    return tree


def assert_lawful(saids: list[EventDraft]) -> None:
    """Everything can be stored, starts before it ends, and nothing is open at the end."""
    tree, begun, ended = Tree(), Counter[str](), Counter[str]()
    for seq, said in enumerate(saids):
        event = CATALOG.build_event(said.payload, id=f"evt_{seq}", origin=said.origin, scope=said.scope)
        envelope = decode_envelope(encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=0))
        agent_id = said.scope.agent_id or ""
        if event.type == "agent.start":
            begun[agent_id] += 1
        elif agent_id and event.type not in ("block.retract", "claude_cli.line"):
            assert begun[agent_id] == 1 + ended[agent_id], (seq, event)
        if event.type == "agent.end":
            invocation = tree.open[agent_id]
            assert (invocation.blocks, invocation.calls) == ({}, {}), (seq, event)
            ended[agent_id] += 1
        tree.apply(envelope, event.payload)
    assert begun == ended
    assert set(begun.values()) <= {1}
    assert tree.open == {}
