"""The example `broker` over sockets: every end of a case, who says and sees what, crashes (document 000)."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_cases import (
    ACCEPT,
    BROUGHT,
    ELIGIBLE,
    GRANTED,
    JOURNEYS,
    READ,
    REFUSE,
    SUBMIT,
    End,
    Event,
    tag,
)
from tests.e2e.broker_desk import (
    Office,
    Step,
    at_once,
    office,
    open_case,
    person,
    serving,
    timeless,
    token,
)
from tests.e2e.examples import emptied, standing
from tests.e2e.harness import ROOT
from tests.support.limits import HANG_S
from turnlog.events import AgentEnd, ParseReject
from turnlog.state.fold import fold
from turnlog_examples.broker import start
from turnlog_examples.broker.audit import accounted
from turnlog_examples.broker.buttons import REDUCERS


def ended(case: Any) -> End:
    fall = case.get("waterfall", {"steps": []})
    return (
        case["status"],
        case.get("caseOutcome", {}).get("kind"),
        case.get("selectedOfferId"),
        len(fall["steps"]),
    )


@pytest.mark.parametrize("name", JOURNEYS)
def test_every_end_is_reached_by_chat_and_by_the_stream_with_the_same_case(tmp_path: Path, name: str) -> None:
    installer_does, customer_does, end = JOURNEYS[name]
    cases = []
    with office("app", tmp_path) as first:
        for people, way in ((first, "chat"), (open_case(first.root), "follow")):
            for step in installer_does:
                getattr(people.installer, way)(step)
            assert people.customer.case["status"] == "awaiting_customer"
            for step in customer_does:
                getattr(people.customer, way)(step)
            cases.append(people.customer.case)
            assert ended(cases[-1]) == end
            assert fold(REDUCERS, people.items, start()) == cases[-1]
    assert timeless(cases[0]) == timeless(cases[1])


@pytest.mark.parametrize("way", ["chat", "follow"])
def test_every_end_is_reached_with_a_model_whose_words_the_test_brings(tmp_path: Path, way: str) -> None:
    with serving("echo", tmp_path) as server:
        for name, ((project_told, facts_told), customer_does, end) in BROUGHT.items():
            people = open_case(server)
            getattr(people.installer, way)(project_told)
            for step in (facts_told, *customer_does):
                getattr(people.customer, way)(step)
            assert ended(people.customer.case) == end, name
            assert not [envelope for envelope, _ in people.items if envelope.type == "parse.reject"]


def said(answer: Any) -> list[tuple[str, str]]:
    """The events of a chat, with who said them."""
    return [(event["type"], event["origin"]) for event in answer["events"]]


def quoted(people: Office) -> None:
    """A case up to the consent, by direct events alone."""
    assert people.installer.act(("record_project_facts", {"projectValue": 12_500}))[0] == 202
    facts: list[Event] = [
        ("record_eligibility", ELIGIBLE),
        ("record_provisional_quote", {"termMonths": 24}),
        ("record_personal_facts", {"fullName": "Sarah O'Neil"}),
        ("record_financial_facts", {"employmentStatus": "Employed", "annualIncome": 41_000}),
    ]
    assert people.customer.act(*facts)[0] == 202


def test_the_answer_of_a_chat_says_who_said_each_event(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        shown = f"Have a look. {tag('present_disclosure', {'id': 'service_status'})}"
        answer = people.customer.chat(Step([GRANTED], shown), seed={"status": "complete"})
        assert said(answer) == [
            ("capture_consent", "ui"),
            ("acknowledge_disclosure", "app"),
            ("present_disclosure", "app"),
            ("present_disclosure", "model"),
        ]
        assert answer["displayText"] == "Have a look."
        assert answer["state"] == people.customer.case
        assert answer["state"]["status"] == "quote_ready", "what a page says of the state is not used"
        assert [bubble["who"] for bubble in answer["messages"]][-3:] == ["note", "user", "assistant"]
        answer = people.customer.chat(Step([READ]))
        assert said(answer)[1:] == [
            ("submit_application", "app"),
            ("waterfall_step", "app"),
            ("waterfall_end", "app"),
        ], "the model's turn submits"
        assert answer["state"]["status"] == "awaiting_counter_decision"


FORBIDDEN: dict[str, Any] = {
    "capture_consent": GRANTED[1],
    "acknowledge_disclosure": {"id": "credit_search_consent"},
    "submit_application": {},
    "accept_counter_offer": {},
    "refuse_counter_offer": {},
    "select_offer": {"offerId": "offer_1"},
    "waterfall_end": {"exhausted": True},
    "request_decision": {},
    "record_provisional_quote": {"termMonths": 0},
    "no_such_event": {},
}


def test_a_model_that_says_what_is_forbidden_changes_nothing_and_leaves_a_reject(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        assert people.customer.act(GRANTED, READ, SUBMIT)[0] == 202
        before = people.customer.case
        assert before["status"] == "awaiting_counter_decision"
        for name, data in FORBIDDEN.items():
            answer = people.customer.chat(Step(words=f"Done. {tag(name, data)}"))
            assert (answer["displayText"], answer["events"]) == ("Done.", []), name
        rejects = [envelope for envelope, _ in people.items if envelope.type == "parse.reject"]
        assert len(rejects) == len(FORBIDDEN)
        assert {envelope.channel for envelope in rejects} == {"customer"}
        # a model may say it; a case that is not selected is not completed
        assert said(people.customer.chat(Step(words=tag("case_complete", {})))) == [
            ("case_complete", "model")
        ]
        assert people.customer.case == before


def test_the_first_outcome_of_an_open_case_is_recorded_and_a_second_changes_nothing(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        first = people.customer.chat(Step(words=tag("case_outcome", {"kind": "declined", "reason": "Ours"})))
        outcome = first["state"]["caseOutcome"]
        assert (outcome["kind"], outcome["reason"], first["state"]["status"]) == (
            "declined",
            "Ours",
            "quote_ready",
        )
        again = people.customer.chat(Step(words=tag("case_outcome", {"kind": "selected"})))
        assert said(again) == [("case_outcome", "model")]
        assert again["state"] == first["state"]


def test_a_repeated_event_leaves_the_case_of_a_running_server_as_it_was(tmp_path: Path) -> None:
    """What document 000 says of idempotency, by new events of the page, each with an id of its own."""
    with office("echo", tmp_path) as people:
        customer = people.customer
        quoted(people)

        def case_after(*events: Event) -> Any:
            assert customer.act(*events)[0] == 202
            return customer.case

        shown: Event = ("present_disclosure", {"id": "service_status"})
        read: Event = ("acknowledge_disclosure", {"id": "service_status"})
        presented = case_after(shown)
        assert case_after(shown) == presented, "the first presentedAt stays"
        acknowledged = case_after(read)
        assert acknowledged["disclosures"][0]["presentedAt"] == presented["disclosures"][0]["presentedAt"]
        assert case_after(read) == acknowledged, "acknowledgedAt is set once"

        town: Event = ("record_personal_facts", {"town": "York"})
        merged = case_after(town)
        assert merged["personal"] == {"fullName": "Sarah O'Neil", "town": "York"}
        assert case_after(town) == merged
        refused = ("capture_consent", {"consentType": "credit_search", "granted": False})
        assert [one["granted"] for one in case_after(GRANTED, GRANTED, refused)["consents"]] == [False]
        assert [one["granted"] for one in case_after(GRANTED)["consents"]] == [True]

        offered = case_after(READ, SUBMIT)
        assert offered["status"] == "awaiting_counter_decision"
        again = case_after(SUBMIT)
        assert (again["status"], again["waterfall"]) == (offered["status"], offered["waterfall"])
        declined = case_after(REFUSE)
        assert (declined["status"], len(declined["waterfall"]["steps"])) == (offered["status"], 2)
        assert case_after(REFUSE) == declined, "the offer of the next lender waits"
        customer.chat(Step(words="Here is another offer."))
        selected = case_after(ACCEPT)
        assert (selected["status"], selected["selectedOfferId"]) == ("selected", "offer_2")
        assert not selected["waterfall"]["awaitingCounterDecision"]
        assert case_after(ACCEPT) == case_after(REFUSE) == selected


def test_the_installers_guide_emits_nothing_that_judges_the_customer(tmp_path: Path) -> None:
    """The control is the customer's guide: it emits the same event, and the case has it."""
    judged = f"So be it. {tag('record_eligibility', ELIGIBLE | {'isEmployed': False})}"
    with office("echo", tmp_path) as people:
        answer = people.installer.chat(Step(words=judged))
        assert (answer["displayText"], answer["events"]) == ("So be it.", [])
        assert (answer["state"]["status"], "eligibility" in people.customer.case) == ("intake", False)
        rejects = [payload for _, payload in people.items if isinstance(payload, ParseReject)]
        assert [(reject.reason, reject.name) for reject in rejects] == [
            ("unknown_type", "record_eligibility")
        ]
        answer = people.customer.chat(Step(words=judged))
        assert said(answer)[0] == ("record_eligibility", "model")
        assert answer["state"]["status"] == "ineligible"


def test_a_page_says_only_what_is_for_its_role(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        before, last = people.customer.case, len(people.items)
        contact = ("record_customer_contact", {"firstName": "Eve"})
        outcome = ("case_outcome", {"kind": "selected"})
        for who, event in (
            (people.customer, contact),
            (people.customer, outcome),
            (people.customer, ("waterfall_end", {"exhausted": False})),
            (people.customer, ("request_decision", {})),
            (people.installer, GRANTED),
            (people.installer, SUBMIT),
            (people.installer, outcome),
            (people.root, outcome),
        ):
            assert who.act(event)[0] == 400, event
            assert who.try_chat(Step([event], "Hello"))[0] == 400, event
        assert people.customer.try_chat(Step([("session.title", {"title": "Mine"})]))[0] == 400
        assert people.customer.try_chat(Step())[0] == 400
        assert (people.customer.case, len(people.items)) == (before, last)


def test_the_link_is_for_one_guest_and_makes_a_customer_and_no_more(tmp_path: Path) -> None:
    with serving("app", tmp_path) as server:
        people = open_case(server)
        ada, bob = people.installer, person(server, people.root.session_id, "customer", token=token("bob"))
        for roles, status in (
            (["customer"], 409),
            (["owner"], 403),
            (["customer", "owner"], 403),
            (["executor"], 400),
        ):
            assert ada.post("/api/links", {"session": ada.session_id, "roles": roles})[0] == status
        member = {"session": ada.session_id, "principal": "ada", "roles": ["installer", "customer"]}
        assert ada.post("/api/members", member)[0] == 403
        invite = {"session": ada.session_id, "roles": ["customer"]}
        assert people.customer.post("/api/links", invite)[0] == 403
        assert bob.post("/api/links", invite)[0] == 404
        assert bob.try_chat(Step(words="Hello"))[0] == 404
        assert people.customer.chat(Step(words="Hello"))["displayText"].startswith("Hello.")


SECRET = "zinnober"  # what is said in the installer's channel only
PRIVATE = "Ms Persimmon"  # what the customer tells about herself
DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw")


def bytes_of(people: Office, who: Any, turn: str) -> dict[str, bytes]:
    """Every byte that somebody gets of a case, by every route."""
    session, history = people.root.session_id, "stream_meta_history_and_tool_results=true"
    told = {dialect: who.heard(f"&dialect={dialect}&{history}", "the-end") for dialect in DIALECTS}
    state = f"/api/state?session={session}&include=transcript,meters,open"
    paths = [f"/api/log?session={session}", f"/api/documents?session={session}", "/api/documents"]
    paths += [state, *[f"{state}&at={seq}" for seq in range(len(people.items))], "/api/sessions", "/api/me"]
    paths += [f"/api/events?session={session}&turn={turn}&dialect={name}&{history}" for name in DIALECTS]
    told |= {path: who.raw(path)[1] for path in paths}
    other = "installer" if who.role == "customer" else "customer"
    chat = {"sessionId": session, "userMessage": "What did they say?"}
    bodies: dict[str, Any] = {f"/api/chat/{role}": chat for role in (who.role, other)}
    bodies["/api/send"] = {"session": session, "message": "hi", "channel": other}
    bodies["/agent/run"] = {"agent_uuid": session, "user_prompt": "What did they say?"}
    bodies["/api/stop"] = {"session": session}
    return told | {path: who.raw(path, body)[1] for path, body in bodies.items()}


def naming(told: dict[str, bytes], turn: str) -> list[str]:
    """The ways by which somebody who did not name a turn got its name."""
    return [path for path, body in told.items() if turn.encode() in body and turn not in path]


def test_installer_and_customer_never_get_a_byte_of_each_others_channel(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        note = tag("record_customer_contact", {"firstName": "Sarah"}) + tag("no_such", {SECRET: SECRET})
        theirs = people.installer.chat(Step([("generate_customer_link", {})], f"{SECRET} {note}"))
        name = {"fullName": PRIVATE}
        mine = people.customer.chat(Step([("record_personal_facts", name)], f"{PRIVATE} it is"))
        assert (theirs["displayText"], mine["displayText"]) == (SECRET, f"{PRIVATE} it is")
        assert people.customer.act(GRANTED)[0] == 202  # from which rules make more
        for who in (people.installer, people.customer):
            who.chat(Step(words="the-end"))
        told = bytes_of(people, people.customer, theirs["turn"])
        assert [path for path, body in told.items() if SECRET.encode() in body] == []
        assert [path for path, body in told.items() if b'"channel":"installer"' in body] == []
        assert naming(told, theirs["turn"]) == []
        told = bytes_of(people, people.installer, mine["turn"])
        assert [path for path, body in told.items() if PRIVATE.encode() in body] == []
        assert naming(told, mine["turn"]) == []
        assert [path for path, body in told.items() if b'"channel":"customer"' in body] == []
        assert not [path for path, body in told.items() if b"disclosure" in body or b"consent" in body]
        assert people.installer.case["contact"] == {"firstName": "Sarah"}
        assert "personal" not in people.installer.case
        control = bytes_of(people, people.root, theirs["turn"])  # who may see everything does
        for word in (SECRET, PRIVATE):
            assert len([path for path, body in control.items() if word.encode() in body]) > 10


def test_the_state_as_of_every_seq_is_the_fold_of_that_prefix(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        people.customer.chat(
            Step([GRANTED], f"Good. {tag('record_email_preference', {'wantsEmailCopy': False})}")
        )
        people.customer.chat(Step([READ, SUBMIT]))
        people.customer.chat(Step([REFUSE]))
        people.customer.chat(Step([ACCEPT], f"Done. {tag('case_complete', {})}"))
        items = people.items
        case = start()
        path = f"/api/state?session={people.root.session_id}"
        for envelope, payload in items:
            case = fold(REDUCERS, [(envelope, payload)], case)
            status, told = people.root.get(f"{path}&at={envelope.seq}")
            assert (status, told["seq"], told["state"]) == (200, envelope.seq, case)
        assert (case["status"], case["selectedOfferId"]) == ("complete", "offer_2")
        assert people.customer.case == case
        assert people.root.get(f"{path}&at={len(items)}")[0] == 410


def test_a_chat_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    with office("echo", tmp_path) as people:
        quoted(people)
        step = Step(
            [GRANTED, READ, SUBMIT], f"So it is. {tag('present_disclosure', {'id': 'service_status'})}"
        )
        first = people.customer.chat(step, key="one")
        before = people.items
        assert people.customer.chat(step, key="one") == first
        named = [{**event, "id": f"evt_page-{n}"} for n, event in enumerate(Step([REFUSE]).direct)]
        refused = people.customer.chat(Step(), directEvents=named)
        assert len(refused["state"]["waterfall"]["steps"]) == 2
        assert people.customer.chat(Step(), directEvents=named) == refused, "one refusal, one lender"
        assert (
            people.customer.try_chat(Step([ACCEPT]), directEvents=[{**named[0], "type": "withdraw"}])[0]
            == 409
        )
        assert people.customer.try_chat(Step(words="Another"), key="one")[0] == 409
        after = people.items
        assert after[: len(before)] == before
        assert [item for item in after if item[0].type == "broker.refuse_counter_offer"] == [
            after[len(before)]
        ]
        other = people.customer.chat(Step(words="Another"), key="two")
        assert other["turn"] != first["turn"]


def test_two_chats_at_once_have_their_turns_one_after_the_other(tmp_path: Path) -> None:
    with office("slow", tmp_path) as people:
        people.customer.chat(Step(words="Hello"))
        read = Step([("acknowledge_disclosure", {"id": "service_status"})])
        answers = at_once(
            lambda: people.customer.chat(read),
            lambda: people.customer.chat(Step([("record_eligibility", ELIGIBLE)], "And then?")),
            lambda: people.installer.chat(Step(words="Hello")),
        )
        turns = {answer["turn"] for answer in answers}
        assert len(turns) == 3
        spans = []
        for turn in turns:
            seqs = {
                envelope.type: envelope.seq
                for envelope, _ in people.items
                if envelope.trace_id == turn and envelope.type.startswith("agent.")
            }
            spans.append((seqs["agent.start"], seqs["agent.end"]))
        spans.sort()
        assert all(one[1] < two[0] for one, two in pairwise(spans))
        case = people.customer.case
        assert (case["status"], case["disclosures"][0].keys()) == (
            "quote_ready",
            {"id", "presentedAt", "acknowledgedAt"},
        )


@pytest.mark.parametrize("moment", ["agent.start", "block.delta"])
def test_chat_whose_server_is_killed_in_mid_turn_goes_on_and_answers_the_same_request_once(
    tmp_path: Path, moment: str
) -> None:
    with serving("slow", tmp_path) as server:
        people, port = open_case(server), server.port
        people.installer.act(("record_project_facts", {"projectValue": 12_500}))
        people.customer.chat(Step(words="Hello"))
        consent = [{"type": GRANTED[0], "data": GRANTED[1], "id": "evt_consent"}]
        step, key = Step(words="Yes, I understand"), "the-same"
        before: Any = {}
        last = len(people.items) - 1

        def killed() -> None:
            people.customer.heard(f"&types={moment}&after={last}", moment)
            before.update(standing(people.root, people.root.session_id))
            server.kill()

        def cut() -> Any:
            try:
                return people.customer.try_chat(step, key, directEvents=consent)
            except OSError:
                return None

        assert at_once(killed, cut)[1] is None
    emptied(tmp_path)
    with serving("slow", tmp_path, port) as server:
        people.moved(server)
        assert before["open"]["agents"], "it was in mid-turn"
        assert standing(people.root, people.root.session_id, before["seq"]) == before
        again = people.customer.chat(step, key=key, directEvents=consent)
        assert again["displayText"] in [one["text"] for one in again["messages"]]
        case = people.customer.case
        assert again["state"] == case
        assert case["consents"][0]["granted"]
        assert case["disclosures"][0].keys() == {"id", "presentedAt", "acknowledgedAt"}
        items = people.items
        assert fold(REDUCERS, items, start()) == case
        ends = [
            payload
            for envelope, payload in items
            if isinstance(payload, AgentEnd) and envelope.trace_id == again["turn"]
        ]
        assert [end.stop_reason for end in ends] == ["end_turn"]
        assert len([one for one in items if one[0].type == "broker.capture_consent"]) == 1
        following = people.customer.chat(Step(words="Go on"))
        assert following["turn"] != again["turn"]


def accounting(*arguments: str) -> tuple[int, Any]:
    """The broker's command, beside the server: its exit code, and what it says."""
    command = [sys.executable, "-m", "turnlog_examples.broker", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_a_case_is_audited_and_its_disclosures_asked_for_again_beside_the_server(tmp_path: Path) -> None:
    installer_does, customer_does, _ = JOURNEYS["clean approval"]
    log = ("--log", f"sqlite:///{tmp_path}/log.db")
    with office("app", tmp_path) as people:
        session = people.root.session_id
        code, said = accounting("replay", session, *log)
        assert (code, said) == (1, f"Error: no disclosure was presented in {session}\n")
        for step in installer_does:
            people.installer.chat(step)
        for step in customer_does:
            people.customer.chat(step)
        code, told = accounting("audit", session, *log)
        assert (code, told) == (0, json.loads(json.dumps(accounted(people.items))))
        figures = told["compliance"]
        assert (told["status"], figures["finalOutcome"]) == ("complete", "completed")
        assert figures["allDisclosuresAcknowledged"]
        assert (figures["explicitConsents"], figures["waterfallSteps"]) == (["credit_search"], 1)
        kinds = [line["kind"] for line in told["timeline"]]
        assert [kinds.count(kind) for kind in ("case_created", "submission", "completed")] == [1, 1, 1]
        code, results = accounting("replay", session, *log, "--runs", "2")
        assert [(one["disclosureId"], one["runs"], one["passRate"]) for one in results] == [
            ("service_status", 2, 1.0),
            ("credit_search_consent", 2, 1.0),
            ("pre_contract_summary", 2, 1.0),
        ]
        assert accounting("audit", "sess_none", *log) == (1, "Error: no session sess_none\n")
