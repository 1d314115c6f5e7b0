"""Pages written for document 000, in real Chromium, against the broker: `fetch` as it is printed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.broker_cases import ELIGIBLE, tag
from tests.e2e.broker_desk import Office, Person, office, open_case
from tests.e2e.console import context_of
from tests.support.tables import for_each_row
from turnlog.events import ParseReject
from turnlog_examples.broker import POSTS
from turnlog_examples.broker.events import BROKER, TAXONOMY

# The form and the request of the document. It prints no headers; C35 adds the content type.
PAGE = """<!doctype html>
<form><button>I am eligible</button></form><p id="bubble"></p>
<script>
const sessionId = new URLSearchParams(location.search).get("session");
const liveSeed = { status: "complete", eligibility: null };
const headers = { "content-type": "application/json" };
const submit = (headers) => fetch("/api/chat/customer", {
  method: "POST",
  headers,
  body: JSON.stringify({
    sessionId,
    seed: liveSeed,
    directEvents: [{
      type: "record_eligibility",
      data: { isOver18: true, isUkResident: true, isHomeowner: true, isEmployed: true },
    }],
  }),
});
const chat = async (role, body) => {
  const asked = { method: "POST", headers, body: JSON.stringify({ sessionId, seed: liveSeed, ...body }) };
  const response = await fetch(`/api/chat/${role}`, asked);
  return [response.status, await response.json()];
};
document.forms[0].addEventListener("submit", async (event) => {
  event.preventDefault();
  const { displayText } = await (await submit(headers)).json();
  if (displayText.trim().length) document.querySelector("#bubble").textContent = displayText;
});
</script>"""

CHUNKS = [
    'Hi Sarah. Got it. <agent-event type="reco',
    'rd_customer_contact" data=\'{"mobile":"07700 900 123',
    "\"}' />",
]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office("chunks", tmp_path_factory.mktemp("page")) as people:
        yield people


def opened(context: BrowserContext, person: Person) -> Page:
    """The page of the document, of this person, from the server's origin."""
    name, _, value = person.cookie.partition("=")
    if name:
        context.add_cookies([{"name": name, "value": value, "url": person.url}])
    else:
        assert context.request.post(f"{person.url}/api/sign-in", headers=person.headers, data={}).ok
    context.route("**/broker-page?*", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    page = context.new_page()
    page.goto(f"{person.url}/broker-page?session={person.session_id}")
    return page


@pytest.fixture
def case(people: Office) -> Office:
    """A new case of the running server."""
    return open_case(people.root)


@pytest.fixture
def page(chrome: Browser, case: Office) -> Iterator[Page]:
    """The customer's page of a new case."""
    with context_of(chrome) as context:
        yield opened(context, case.customer)


def chat(page: Page, role: str = "customer", **body: Any) -> Any:
    status, answer = page.evaluate("([role, body]) => chat(role, body)", [role, body])
    assert status == 200, answer
    return answer


def bare(answer: Any) -> list[tuple[str, Any]]:
    """The events that the model said, as the parser of the document gives them."""
    return [(event["type"], event["data"]) for event in answer["events"] if event["origin"] == "model"]


def test_the_printed_request_is_taken_from_a_form_and_its_seed_is_not_used(page: Page, case: Office) -> None:
    page.get_by_role("button").click()
    expect(page.locator("#bubble")).to_contain_text("record_eligibility")
    state = case.customer.case
    assert (state["status"], {name: state["eligibility"][name] for name in ELIGIBLE}) == (
        "quote_ready",
        ELIGIBLE,
    )
    assert [
        envelope.origin for envelope, _ in case.items if envelope.type == "broker.record_eligibility"
    ] == ["ui"]


def test_the_printed_request_without_a_content_type_is_refused_and_changes_nothing(
    page: Page, case: Office
) -> None:
    before = case.items
    assert page.evaluate("async () => (await submit(undefined)).status") == 415
    assert case.items == before


@pytest.mark.parametrize("role", POSTS)
def test_every_event_of_the_taxonomy_that_is_for_a_page_comes_from_it_and_no_other(
    chrome: Browser, case: Office, role: str
) -> None:
    names = {kind.payload_class: kind.tag for kind in BROKER}
    with context_of(chrome) as context:
        page = opened(context, case.installer if role == "installer" else case.customer)
        for payload in sorted(TAXONOMY, key=lambda one: one.__name__ == "Withdraw"):
            sent = {"type": names[payload], "data": dict(payload.EXAMPLE)}
            status, answer = page.evaluate(
                "([role, body]) => chat(role, body)", [role, {"directEvents": [sent]}]
            )
            assert status == (200 if payload in POSTS[role] else 400), (payload, answer)
            if status == 200:
                assert answer["events"][0] == {**sent, "origin": "ui"}


def test_a_turn_of_events_alone_applies_them_and_adds_no_assistant_turn(page: Page) -> None:
    said = tag("acknowledge_disclosure", {"id": "service_status"})
    answer = chat(page, userMessage=said)
    assert (answer["displayText"], bare(answer)) == (
        "",
        [("acknowledge_disclosure", {"id": "service_status"})],
    )
    [record] = answer["state"]["disclosures"]
    assert (record["id"], "acknowledgedAt" in record) == ("service_status", True)
    assert [message["who"] for message in answer["messages"]] == ["user"]
    blank = chat(page, userMessage=f" \n{said}\n ")
    assert (blank["displayText"], blank["state"]) == ("", answer["state"]), "white space is no prose"
    after = chat(page, userMessage="Shall we go on?")
    assert [message["who"] for message in after["messages"]] == ["user", "user", "user", "assistant"]


def test_the_printed_turn_gives_the_printed_text_and_events_in_order(chrome: Browser, case: Office) -> None:
    """`How a turn flows` is a turn of the installer's guide."""
    said = (
        "Got it. Sending Sarah a link now.\n"
        + tag("record_customer_contact", {"mobile": "07700 900 123"})
        + "\n"
        + tag("generate_customer_link", {})
    )
    with context_of(chrome) as context:
        answer = chat(opened(context, case.installer), "installer", userMessage=said)
    assert answer["displayText"] == "Got it. Sending Sarah a link now."
    assert bare(answer) == [
        ("record_customer_contact", {"mobile": "07700 900 123"}),
        ("generate_customer_link", {}),
    ]
    assert answer["state"]["contact"] == {"mobile": "07700 900 123"}
    assert answer["state"]["status"] == "awaiting_customer"
    assert answer["messages"][-1]["text"] == "Got it. Sending Sarah a link now."


FOLLOW = """async () => {
  const seen = [];
  const source = new EventSource(`/api/events?session=${sessionId}`);
  const ended = new Promise((resolve) => {
    source.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      seen.push([event.type, event.payload]);
      if (event.type === "agent.end") resolve();
    };
  });
  await new Promise((resolve) => (source.onopen = resolve));
  const [status, answer] = await chat("customer", { userMessage: %s });
  if (status !== 200) throw new Error(JSON.stringify(answer));
  await ended;
  source.close();
  return [answer, seen];
}"""


def test_the_printed_chunks_show_the_words_first_and_the_event_when_its_tag_is_closed(page: Page) -> None:
    answer, seen = page.evaluate(FOLLOW % json.dumps(json.dumps(CHUNKS)))
    assert answer["displayText"] == "Hi Sarah. Got it."
    assert bare(answer) == [("record_customer_contact", {"mobile": "07700 900 123"})]
    deltas = [payload["text"] for name, payload in seen if name == "block.delta"]
    assert "".join(deltas) == "Hi Sarah. Got it."
    types = [name for name, _ in seen]
    assert types.index("block.delta") < types.index("broker.record_customer_contact")
    texts = [payload["text"] for name, payload in seen if name == "assistant.message"]
    assert texts == ["Hi Sarah. Got it."]


DIALECTS = [
    (
        """{"fullName":"John's Smith","town":"King's Lynn"}""",
        {"fullName": "John's Smith", "town": "King's Lynn"},
    ),
    ("""{\\"fullName\\":\\"John's Smith\\"}""", {"fullName": "John's Smith"}),
    ("{“fullName”:“John’s Smith”}", {"fullName": "John's Smith"}),
    ("""{"fullName":"“Jo”","county":"a } b { c />"}""", {"fullName": "“Jo”", "county": "a } b { c />"}),
]


@for_each_row(("data", "facts"), DIALECTS)
def test_three_dialects_and_apostrophes_arrive_whole_in_one_text_and_in_characters(
    page: Page, data: str, facts: Any
) -> None:
    said = f"Noted. <agent-event type=\"record_personal_facts\" data='{data}' />"
    for words in (said, json.dumps(list(said))):
        answer = chat(page, userMessage=words)
        assert (answer["displayText"], bare(answer)) == ("Noted.", [("record_personal_facts", facts)])
        assert answer["state"]["personal"] | facts == answer["state"]["personal"]


def test_a_tag_that_no_dialect_reads_leaves_the_words_and_a_reject(page: Page, case: Office) -> None:
    broken = "<agent-event type=\"record_personal_facts\" data='{fullName: Jo}' />"
    answer = chat(page, userMessage=f"Noted. {broken} Go on.")
    assert (answer["displayText"], answer["events"]) == ("Noted. Go on.", [])
    assert answer["state"]["personal"] == {}
    assert [payload.reason for _, payload in case.items if isinstance(payload, ParseReject)] == ["bad_json"]
    again = chat(page, userMessage=tag("record_personal_facts", {"fullName": "Jo"}))
    assert again["state"]["personal"] == {"fullName": "Jo"}, "the model says it again, and it applies"


def test_an_event_that_the_model_says_again_later_is_invisible_and_counted(page: Page, case: Office) -> None:
    said = f"There it is. {tag('present_disclosure', {'id': 'service_status'})}"
    first = chat(page, userMessage=said)
    again = chat(page, userMessage=said)
    assert bare(again) == bare(first) == [("present_disclosure", {"id": "service_status"})]
    assert again["state"] == first["state"], "the first presentedAt stays"
    assert [item[0].type for item in case.items].count("broker.present_disclosure") == 2


def test_a_backtick_before_a_tag_hides_no_event_and_an_open_fence_leaves_a_reject(
    page: Page, case: Office
) -> None:
    note = tag("record_personal_facts", {"fullName": "Jo"})
    stray = chat(page, userMessage=f"It`s fine. {note}")
    assert (stray["displayText"], bare(stray)) == (
        "It`s fine.",
        [("record_personal_facts", {"fullName": "Jo"})],
    )
    fenced = chat(page, userMessage=f"```\n{note}")
    assert fenced["events"] == []
    assert [payload.reason for _, payload in case.items if isinstance(payload, ParseReject)] == [
        "unclosed_code"
    ]


POST_TWICE = """async (events) => {
  const id = crypto.randomUUID();
  const seqs = [];
  for (const own of [id, id.toUpperCase(), `evt_${id}`]) {
    const body = JSON.stringify({ session: sessionId, events: [{ ...events[0], id: own }] });
    const response = await fetch("/api/events", { method: "POST", headers, body });
    seqs.push((await response.json()).seqs[0]);
  }
  return [id, seqs];
}"""


def test_a_uuid_that_the_page_attaches_makes_an_event_once_by_either_route(page: Page, case: Office) -> None:
    email = {"type": "broker.record_email_preference", "payload": {"wantsEmailCopy": False}}
    uuid, seqs = page.evaluate(POST_TWICE, [email])
    assert len(set(seqs)) == 1
    assert [envelope.id for envelope, _ in case.items if envelope.type == email["type"]] == [f"evt_{uuid}"]
    direct = {"type": "record_eligibility", "data": ELIGIBLE, "id": page.evaluate("crypto.randomUUID()")}
    first, last = chat(page, directEvents=[direct]), len(case.items)
    assert chat(page, directEvents=[direct]) == first
    assert len(case.items) == last
    status, _ = page.evaluate(
        "body => chat('customer', body)", {"directEvents": [{**direct, "type": "withdraw", "data": {}}]}
    )
    assert status == 409, "the id of another event"
