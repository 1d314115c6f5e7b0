"""Row 3: a page that another person's cookie has come under does nothing as that person."""

from tests.security.apps import plain
from tests.security.desk import desk, run


def test_request_that_names_another_principal_is_412_and_does_nothing() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            named = {"turnlog-principal": "ada"}
            answer = await at.ask("bob", "POST", "/api/sessions", {"app": "plain"}, named)
            stream = await at.ask("bob", "GET", "/api/events?session=x", None, named)
            listed = await at.ask("bob", "GET", "/api/sessions")
            assert (answer.status, stream.status) == (412, 412)
            assert answer.value == {"error": "you are signed in as bob now"}
            assert listed.value["sessions"] == []

    run(scenario())


def test_control_request_that_names_none_counts_for_its_caller() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            answer = await at.ask("bob", "POST", "/api/sessions", {"app": "plain"})
            listed = await at.ask("bob", "GET", "/api/sessions")
            assert answer.status == 201
            assert len(listed.value["sessions"]) == 1

    run(scenario())


def test_name_of_a_principal_is_percent_encoded() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            answer = await at.ask("bob", "GET", "/api/me", None, {"turnlog-principal": "b%6Fb"})
            assert answer.status == 200

    run(scenario())
