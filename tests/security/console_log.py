"""A log full of payloads, written straight into the store: all places that a console shows hold them.

Each payload has a turn of its own, in which everything is hostile: who speaks, what is said, thought, called,
answered and noted. Then come turns of what holds many at once (views, files, a team, sources), and one that
waits for a person. What no route would let in is written too: a console must not rely on its server.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain, cycle
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw

import turnlog
from tests.security.console_apps import CATALOG, Noted, hostile, mild
from tests.security.console_payloads import (
    BREAKING,
    CALM,
    COLOURS,
    KEYS,
    RUDE,
    SHARP,
    SOURCES,
    Attack,
    Attacks,
    as_name,
)
from turnlog.events import Event, Origin, Payload, Scope, View
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.events.agent import AgentEnd, AgentHandoff, AgentStart, AgentUsage, Usage
from turnlog.events.assistant import (
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    AssistantView,
    Citation,
    File,
)
from turnlog.events.block import BlockEnd, BlockStart
from turnlog.events.envelope import UnknownPayload
from turnlog.events.parse import ParseReject
from turnlog.events.process import ProcessStart, SessionError, SessionMember, SessionTitle
from turnlog.events.tool import (
    ApprovalRequest,
    AwaitedCall,
    ErrorInfo,
    Image,
    ToolAwait,
    ToolCall,
    ToolResult,
)
from turnlog.events.ui import UiMessage
from turnlog.events.view_nodes import (
    Button,
    Form,
    Node,
    Option,
    Screen,
    Section,
    SelectField,
    TableEditor,
    TableRow,
    Text,
    TextField,
)
from turnlog.log import Log
from turnlog.team.events import (
    ArtifactMeta,
    ArtifactWrite,
    JobSuggest,
    RosterJoin,
    RosterOffer,
    ScreenCommand,
)

BATCH = 200  # events of one append
POLLUTION = {"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}
TEMPLATE = {"_$litType$": 1, "strings": ["<img src=x onerror=pwned('template/args')>"], "values": []}
USED = Usage(input_tokens=9, output_tokens=6)


def written(payload: Payload, origin: Origin, scope: Scope) -> Event:
    return CATALOG.build_event(payload, id=turnlog.new_id("evt_"), origin=origin, scope=scope)


def unknown(type: str, body: bytes) -> Event:
    """An event that no vocabulary has."""
    payload = UnknownPayload(Raw(body))
    return Event(type=type, id=turnlog.new_id("evt_"), payload=payload, body=body, origin="app")


def a_turn(number: int, attack: Attack) -> Iterator[Event]:
    """A turn in which everything is one payload."""
    scope = Scope(
        trace_id=f"tr_{number}",
        agent_id=f"agt_{number}",
        agent_name=as_name(attack, "agent"),
        depth=0,
        actor=as_name(attack, "actor"),
    )
    call, tool = f"call_{number}", as_name(attack, "tool")
    args = {"x": attack.by("args"), attack.by("key"): TEMPLATE, **POLLUTION}
    said = UiMessage(
        text=attack.by("said"), speaker=as_name(attack, "speaker"), target=as_name(attack, "target")
    )
    start = AgentStart(
        name=as_name(attack, "agent"),
        via="prompt",
        model=as_name(attack, "model"),
        prompt=attack.by("prompt"),
    )
    answer = ToolResult(call_id=call, tool=tool, ok=True, result=attack.by("result"))
    yield written(said, "ui", Scope(trace_id=scope.trace_id, actor=scope.actor))
    yield written(start, "system", scope)
    yield written(AssistantThinking(text=attack.by("thinking")), "model", scope)
    yield written(AssistantMessage(text=attack.by("text")), "model", scope)
    yield written(ToolCall(call_id=call, tool=tool, args=args), "model", scope)
    yield written(AgentUsage(model=as_name(attack, "model"), usage=USED), "system", scope)
    yield written(answer, "tool", scope)
    yield written(Noted(text=attack.by("note")), "model", scope)
    yield written(AgentEnd(stop_reason="error", result=attack.by("ended")), "system", scope)


def failures(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """What went wrong, in hostile words: calls, the session, a parser, an agent that spoke for another."""
    for number, attack in enumerate(attacks.all):
        call, tool = f"call_f{number}", as_name(attack, "tool")
        fault = ErrorInfo(code=as_name(attack, "code"), message=attack.by("fault"), details=POLLUTION)
        yield written(ToolCall(call_id=call, tool=tool, args={}), "model", scope)
        yield written(ToolResult(call_id=call, tool=tool, ok=False, error=fault), "tool", scope)
        problem = SessionError(code=as_name(attack, "code"), message=attack.by("problem"))
        yield written(problem, "system", scope)
        yield written(BlockStart(block_id=f"b{number}", kind="text"), "model", scope)
        cut = BlockEnd(block_id=f"b{number}", status="aborted", text=attack.by("aborted"))
        yield written(cut, "model", scope)
    for name in attacks.names("spoken"):
        yield written(AssistantMessage(text="x", speaker=name), "app", scope)
    for name in attacks.names("rejected"):
        yield written(ParseReject(reason=name, length=1, sha256="0", name=name), "system", scope)


def citations(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """A text whose sources are hostile, by name, by words and by address."""
    named = [
        Citation(
            type="web_search_result_location",
            cited_text=attack.by("cited"),
            title=attack.by("source-title"),
            url=address.by("cite"),
        )
        for attack, address in zip((*attacks.all, *SOURCES), cycle(SOURCES), strict=False)
    ]
    others = [Citation(type="x", cited_text="x", source=attack.by("cite-source")) for attack in SOURCES]
    yield written(AssistantMessage(text="Cited.", citations=(*named, *others)), "model", scope)


def pictures(scope: Scope, _: Attacks) -> Iterator[Event]:
    """A call that answers with images from everywhere."""
    images = tuple(Image(src=attack.by("images"), media_type="image/png") for attack in SOURCES)
    yield written(ToolCall(call_id="call_images", tool="draw", args={}), "model", scope)
    result: dict[str, Any] = {"images": [{"src": attack.by("in-result")} for attack in SOURCES]}
    answer = ToolResult(call_id="call_images", tool="draw", ok=True, result=result, images=images)
    yield written(answer, "tool", scope)


def views(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """Views whose words are hostile, and views whose ids are."""
    for name, tree in {
        "texts": Screen([Text(text) for text in attacks.by("view")], title="Texts"),
        "labels": Screen(
            [form(attacks), table(attacks), *buttons(attacks)], title=attacks.labels("view-title")[0]
        ),
    }.items():
        yield written(AssistantView(view=View.of(name, tree, title=name)), "model", scope)
    yield written(AssistantView(view=View.a2ui("surface", surface(attacks))), "model", scope)
    for attack in KEYS:
        title = attacks.labels("view-name")[0]
        view = View.of(attack.by("view-id"), Text("x"), title=title)
        yield written(AssistantView(view=view), "model", scope)


def surface(attacks: Attacks) -> list[dict[str, Any]]:
    """A surface of A2UI that is hostile in its texts, headings and labels, and in the data that it shows."""
    components: list[dict[str, Any]] = []
    for at, text in enumerate(attacks.by("view")):
        components.append({"id": f"t{at}", "component": "Text", "text": text})
    for at, text in enumerate(attacks.labels("label")):
        components.append({"id": f"h{at}", "component": "Text", "text": text, "variant": "h3"})
        components.append({"id": f"f{at}", "component": "TextField", "label": text, "value": text})
    children = [component["id"] for component in components]
    components.append({"id": "item", "component": "Text", "text": {"path": "words"}})
    template = {"componentId": "item", "path": "/items"}
    components.append({"id": "list", "component": "List", "children": template})
    components.append({"id": "root", "component": "Column", "children": [*children, "list"]})
    items = [{"words": text} for text in attacks.by("view")]
    bodies: dict[str, dict[str, Any]] = {
        "createSurface": {"catalogId": BASIC_CATALOG},
        "updateComponents": {"components": components},
        "updateDataModel": {"value": {"items": items}},
    }
    return [{"version": "v0.9", name: {"surfaceId": "surface", **body}} for name, body in bodies.items()]


def form(attacks: Attacks) -> Form:
    """A form that is hostile wherever it has words."""
    fields = [
        TextField(f"f{at}", text, help=text, error=text, placeholder=text, value=text)
        for at, text in enumerate(attacks.labels("label"))
    ]
    options = [Option(text, label=text) for text in attacks.labels("option")]
    first = fields[0].label
    return Form(
        "form", [*fields, SelectField("s", "x", options=options)], title=first, submit=first, error=first
    )


def table(attacks: Attacks) -> TableEditor:
    """A table with hostile columns, cells and complaints."""
    columns = [TextField(f"c{at}", text) for at, text in enumerate(attacks.labels("column")[:20])]
    rows = [
        TableRow(f"r{at}", values={"c0": attack.by("cell")}, errors={"c1": attack.by("cell-error")})
        for at, attack in enumerate(attacks.all[:20])
    ]
    return TableEditor("table", columns, rows, title=columns[0].label, save=columns[0].label)


def buttons(attacks: Attacks) -> list[Node]:
    """Hostile buttons, and sections that are called so."""
    labels, titles = attacks.labels("button"), attacks.labels("section")
    made: list[Node] = [Button(f"b{at}", label, confirm=label) for at, label in enumerate(labels)]
    return [*made, *(Section([], title=title) for title in titles)]


def files(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """Files and artifacts with hostile names."""
    made = tuple(
        File(file_id=f"file_{at}", filename=attack.by("file"), storage_location=attack.by("location"))
        for at, attack in enumerate((*attacks.all, *SOURCES))
    )
    yield written(AssistantFiles(files=made), "model", scope)
    for attack in attacks.all:
        meta = ArtifactMeta(description=attack.by("artifact"), category="knowledge")
        artifact = ArtifactWrite(
            filename=attack.by("artifact"), path=attack.by("path"), is_new=True, size_bytes=1, meta=meta
        )
        yield written(artifact, "tool", scope)


def team(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """A team with hostile names, souls and colours; members with hostile names."""
    names = attacks.names("member")
    for seat, (name, soul, colour) in enumerate(
        zip(cycle(names), cycle(attacks.by("soul")), COLOURS, strict=False)
    ):
        joined = RosterJoin(name=name, seat=seat, color=colour.by("colour"), color_name=soul, soul=soul)
        yield written(joined, "model", scope)
    for name in names:
        yield written(SessionMember(principal=name, roles=("guest",)), "system", scope)
    yield written(RosterOffer(agent=names[0], jobs=tuple(names)), "model", scope)
    yield written(ScreenCommand(command=attacks.by("screen")[0]), "tool", scope)
    yield written(JobSuggest(suggestions={names[0]: names, **POLLUTION}), "model", scope)
    yield written(ProcessStart(process="model", pid=1, model=names[0]), "system", scope)


def keys(scope: Scope, _: Attacks) -> Iterator[Event]:
    """Ids and types that are names of what every object has, or markup."""
    for attack in KEYS:
        key = attack.by("id")
        data = {key: attack.by("block"), **POLLUTION}
        yield written(ToolCall(call_id=key, tool=key, args={key: key}, block_id=key), "model", scope)
        yield written(ToolResult(call_id=key, tool=key, ok=True, result=data), "tool", scope)
        yield written(AssistantBlock(kind=key, data=data, block_id=key), "model", scope)
        yield written(AgentHandoff(to=key, to_agent_id="agt_nobody"), "system", scope)
        yield unknown(attack.by("type"), turnlog_json(data))


def turnlog_json(data: dict[str, Any]) -> bytes:
    return CATALOG.build_event(
        "assistant.block", {"kind": "x", "data": data}, id="evt_1", origin="model"
    ).body


def waiting(scope: Scope, attacks: Attacks) -> Iterator[Event]:
    """Calls that wait for a person: questions, choices, an input, an approval."""
    words = attacks.names("question")
    asked: dict[str, dict[str, Any]] = {
        "confirm": {"question": "\n".join(attacks.by("question"))},
        "choose": {"message": words[0], "options": [*words[:40]]},
        "pick": {"choices": [{"value": word, "label": word} for word in attacks.names("choice")[:40]]},
        "answer": {"prompt": TEMPLATE, "options": [TEMPLATE], **POLLUTION},
    }
    given = {f"q{at}": word for at, word in enumerate(words)} | {"__proto__": {"label": "x"}}
    yield written(AgentStart(name="Waiting", via="prompt"), "system", scope)
    for tool, args in asked.items():
        yield written(ToolCall(call_id=tool, tool=tool, args=args, executor="frontend"), "model", scope)
    yield written(ToolCall(call_id="input", tool="input", args=given), "model", scope)
    yield written(ToolCall(call_id="approve", tool=words[0], args=asked["confirm"]), "model", scope)
    yield written(AgentUsage(model="x", usage=USED), "system", scope)
    request = ApprovalRequest(
        call_id="approve",
        tool=words[0],
        args_hash="0",
        risk=words[1],
        reason="\n".join(attacks.by("reason")),
        roles=tuple(attacks.names("role")),
    )
    yield written(request, "system", scope)
    calls = [AwaitedCall(call_id=tool, tool=tool, args=args) for tool, args in asked.items()]
    calls.append(AwaitedCall(call_id="input", tool="input", args=given))
    yield written(ToolAwait(calls=tuple(calls)), "system", scope)


TURNS = (failures, citations, pictures, views, files, team, keys)


def everywhere(attacks: Attacks) -> Iterator[Event]:
    """Attacks in every place that can hold them."""
    yield from (event for number, attack in enumerate(attacks.all) for event in a_turn(number, attack))
    for number, turn in enumerate(TURNS):
        scope = Scope(trace_id=f"tr_t{number}", agent_id=f"agt_t{number}", agent_name="Many", depth=0)
        yield written(AgentStart(name="Many", via="prompt"), "system", scope)
        yield from turn(scope, attacks)
        yield written(AgentEnd(stop_reason="end_turn", steps=1), "system", scope)
    waits = Scope(trace_id="tr_w", agent_id="agt_w", agent_name="Waiting", depth=0)
    yield from waiting(waits, attacks)


def messages(attacks: Attacks) -> Iterator[Event]:
    """Attacks as what a model said."""
    for number, attack in enumerate(attacks.all):
        yield written(AssistantMessage(text=attack.by("text")), "model", Scope(trace_id=f"tr_m{number}"))


class Sessions(NamedTuple):
    """The sessions of a hostile log."""

    full: str  # every payload in every place
    live: str  # nothing yet: a model says every payload in it
    short: str  # every payload as a message, a few in every place: what a page without defences survives
    short_live: str  # nothing yet: a model says a few in it
    rude: str  # payloads that lead the page away, or take what it uses
    breaking: str  # one after which nothing is drawn any more


def hostile_log(folder: Path) -> Sessions:
    """A log in a folder that is full of payloads, for the applications of `console_apps`."""
    return asyncio.run(_hostile_log(folder))


async def _hostile_log(folder: Path) -> Sessions:
    log = await turnlog.open_log(f"sqlite:///{folder}/log.db")
    told = {"full": everywhere(CALM), "live": (), "short": chain(everywhere(SHARP), messages(CALM))}
    told |= {"short_live": (), "rude": messages(RUDE), "breaking": messages(BREAKING)}
    sessions = {}
    for (name, events), title in zip(told.items(), cycle(SHARP.names("title"))):
        app = hostile if name in ("full", "live") else mild
        sessions[name] = await _session(log, app.name, title, events)
    await log.close()
    return Sessions(**sessions)


async def _session(log: Log, app: str, title: str, events: Iterable[Event]) -> str:
    session = await log.create(app)
    first: list[Payload] = [SessionMember(principal="local", roles=("owner",)), SessionTitle(title=title)]
    left = [*(written(payload, "system", Scope()) for payload in first), *events]
    while left:
        await log.append(session, left[:BATCH])
        del left[:BATCH]
    return session
