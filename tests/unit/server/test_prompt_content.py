"""Content blocks as a prompt: what reaches the model and the page, what is stored, and what is refused."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from turnlog import Agent, App
from turnlog.agents.models.messages import to_api_part
from turnlog.agents.models.model import Request
from turnlog.app import LOCAL
from turnlog.events import Usage
from turnlog.parse.reply import ReplyBuilder
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.prompt_content import MAX_BLOCKS, MAX_PROMPT_BODY_BYTES
from turnlog.wire.sse import Decoder

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 1500
IMAGE = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
PDF = {"type": "base64", "media_type": "application/pdf", "data": b64encode(b"%PDF-").decode()}
NOTE = {"type": "text", "media_type": "text/plain", "data": "A note."}
WEB = {"type": "url", "url": "https://example.com/a.png"}
PROMPT: list[dict[str, Any]] = [
    {"type": "image", "source": IMAGE},
    {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "source": WEB},
    {"type": "document", "source": PDF, "title": "Report", "context": "of May"},
    {"type": "document", "source": NOTE},
]


class Listener:
    """A model that keeps the content it was sent, in the form of the API."""

    name = "listener"

    def __init__(self) -> None:
        self.heard: list[list[Any]] = []

    async def stream(self, request: Request, reply: ReplyBuilder) -> Any:
        content = [
            await to_api_part(part, request.read_blob)
            for message in request.messages
            for part in message.content
            if message.role == "user"
        ]
        self.heard.append(content)
        usage = Usage(input_tokens=1, output_tokens=1)
        yield reply.text("I see.") + reply.done("end_turn", usage)


@pytest.fixture
def model() -> Listener:
    return Listener()


@pytest.fixture
def client(model: Listener) -> Iterator[TestClient]:
    server = create_app(
        App("desk", Agent("Guide", "", model)),
        "memory:",
        auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}),
    )
    with TestClient(server, base_url="http://localhost", headers={"authorization": "Bearer t"}) as client:
        yield client


def run(client: TestClient, prompt: Any, query: str = "") -> list[Any]:
    answer = client.post(f"/agent/run{query}", json={"user_prompt": prompt, "agent_uuid": "a"})
    assert answer.status_code == 200, answer.text
    return [json.loads(one.data) for one in Decoder().feed(answer.content) if one.data.startswith("{")]


def joined(messages: list[Any], kind: str) -> Any:
    return json.loads("".join(one["delta"] for one in messages if one["type"] == kind))


def test_prompt_of_content_blocks_reaches_the_model_in_every_turn(
    client: TestClient, model: Listener
) -> None:
    run(client, PROMPT)
    run(client, "And now?")
    expected = [
        {"type": "image", "source": IMAGE},
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": WEB},
        {"type": "document", "source": PDF, "title": "Report", "context": "of May"},
        {"type": "document", "source": NOTE},
    ]
    assert model.heard == [expected, [*expected, {"type": "text", "text": "And now?"}]]


def test_prompt_of_content_blocks_is_told_with_the_size_of_its_data(client: TestClient) -> None:
    option = "?stream_meta_history_and_tool_results=true"
    messages = run(client, PROMPT, option)
    query = json.loads(joined(messages, "meta_init")["user_query"])
    label = "[base64, 1.5 KB]"
    assert query[0] == {
        "type": "image",
        "source": {"type": "base64", "data": label, "media_type": "image/png"},
    }
    assert query[1] == {"type": "text", "text": "What is this?"}
    assert query[2] == {"type": "image", "source": WEB}
    assert (query[3]["title"], query[3]["context"]) == ("Report", "of May")
    history = joined(messages, "meta_final")["conversation_history"]
    assert history[0]["content"][0] == query[0]
    assert label not in joined(run(client, "plain"), "meta_init")["user_query"]


def test_prompt_of_content_blocks_is_a_text_for_people(client: TestClient) -> None:
    run(client, PROMPT)
    [session] = client.get("/api/sessions").json()["sessions"]
    lines = client.get(f"/api/log?session={session['session_id']}").text.splitlines()
    [message] = [json.loads(line)["payload"] for line in lines if '"ui.message"' in line]
    assert message["text"] == "[image]\nWhat is this?\n[image]\n[document: Report]\n[document]"
    assert client.get(f"/{message['content'][0]['src']}").content == PNG


@pytest.mark.parametrize(
    ("prompt", "heard"),
    [
        ("Hello", "Hello"),
        ([{"type": "text", "text": "Hello"}], "Hello"),
        ({"type": "text", "text": "Hello"}, "Hello"),
        ({"role": "user", "content": "Hello"}, "Hello"),
        ({"role": "user", "content": [{"type": "text", "text": "Hello"}]}, "Hello"),
        ({"city": "Oslo"}, '{"city":"Oslo"}'),
        ({"role": "assistant", "content": "Hello"}, '{"role":"assistant","content":"Hello"}'),
    ],
)
def test_prompt_in_every_form_reaches_the_model(
    client: TestClient, model: Listener, prompt: Any, heard: str
) -> None:
    run(client, prompt)
    assert model.heard == [[{"type": "text", "text": heard}]]


def image(**fields: str) -> list[Any]:
    return [{"type": "image", "source": IMAGE | fields}]


@pytest.mark.parametrize(
    ("prompt", "path"),
    [
        ([{"type": "text", "text": "a"}, {"type": "audio"}], "[1].type"),
        (["a"], "[0]"),
        ({"type": "audio"}, "[0].type"),
        ({"role": "user", "content": [{"type": "audio"}]}, ".content[0].type"),
        (image(media_type="image/tiff"), "[0].source.media_type"),
        (image(data="no base64!"), "[0].source.data"),
        (image(data=""), "[0].source.data"),
        (image(data="A" * (5 << 20) + "AAAA"), "[0].source.data"),
        ([{"type": "document", "source": NOTE | {"data": "x" * 100_001}}], "[0].source.data"),
        ([{"type": "image", "source": WEB | {"url": "file:///etc/passwd"}}], "[0].source.url"),
        ([{"type": "text", "text": " "}], ""),
        ([], ""),
        ([{"type": "text", "text": "a"}] * (MAX_BLOCKS + 1), ""),
    ],
)
def test_prompt_that_cannot_be_used_is_refused_and_leaves_nothing(
    client: TestClient, prompt: Any, path: str
) -> None:
    answer = client.post("/agent/run", json={"user_prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(f"(at $.user_prompt{path})"), answer.json()
    assert client.get("/api/sessions").json()["sessions"] == []


def test_body_over_the_limit_or_with_too_many_values_is_refused(client: TestClient) -> None:
    large = {"user_prompt": [{"type": "image", "source": {**IMAGE, "data": "A" * MAX_PROMPT_BODY_BYTES}}]}
    many = {"user_prompt": "a", "other": [0] * 600_000}
    for body in (large, many):
        assert client.post("/agent/run", json=body).status_code == 413
