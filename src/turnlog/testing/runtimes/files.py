"""Contracts of runtimes: the files of a message reach the model, as images, documents and texts."""

from base64 import b64encode
from collections.abc import Sequence

from turnlog.testing.runtimes.answering import DELETE, ONE
from turnlog.testing.runtimes.harness import MessageFile, RuntimeUnderTest, open_session
from turnlog.testing.runtimes.scripts import AgentScript, CallTool, ScriptInput, ScriptReply
from turnlog.testing.runtimes.talking import DONE, say_hello

TEXT = "Two tickets to Oslo."
PLAN = MessageFile("plan.png", "image/png", b"\x89PNG\r\n\x1a\n plan")
BILL = MessageFile("bill.pdf", "application/pdf", b"%PDF-1.7 bill")
TRIP = MessageFile("trip.txt", "text/plain", TEXT.encode())
FILES = (PLAN, BILL, TRIP)


def check_files(found: Sequence[str], *files: MessageFile) -> None:
    """Check that a model reads these files, once each and in their order."""
    assert len(found) == len(files), f"expected {len(files)} files, got {[text[:40] for text in found]}"
    for text, file in zip(found, files, strict=True):
        if file is TRIP:
            assert TEXT in text
        else:
            assert text == f"data:{file.media_type};base64,{b64encode(file.data).decode()}"


def delete_one_of_a_file(given: ScriptInput) -> ScriptReply:
    """Delete something after the first message, which has files; say that it is done after its result."""
    return DONE if given.new_results else ScriptReply(calls=(CallTool("delete", "/a", "call_a"),))


async def file_of_message(runtime: RuntimeUnderTest) -> None:
    """The model gets the file of a message, in its turn and in the next."""
    async with open_session(runtime, AgentScript("Lead", say_hello)) as session:
        await session.say("Look.", FILES)
        await session.check()
        first = session.record.inputs["Lead"][-1]
        check_files(first.files, *FILES)
        assert first.last_user_text.startswith("Look.")
        await session.restart()
        await session.say("Again")
        await session.check()
        last = session.record.inputs["Lead"][-1]
        check_files(last.files, *FILES)
        assert last.last_user_text == "Again"


async def file_of_message_instead_of_answer(runtime: RuntimeUnderTest) -> None:
    """The model gets the file of a message that takes the place of an answer."""
    async with open_session(runtime, ONE) as session:
        await session.say("Hi")
        await session.restart()
        await session.say("Look.", FILES)
        await session.check()
        assert session.record.effects == []
        check_files(session.record.inputs["Lead"][-1].files, *FILES)


async def file_while_agent_waits(runtime: RuntimeUnderTest) -> None:
    """An agent that waited over a restart still has the file of its message."""
    async with open_session(runtime, AgentScript("Lead", delete_one_of_a_file, [DELETE])) as session:
        await session.say("Look.", FILES)
        await session.check(is_waiting=True)
        await session.restart()
        await session.answer("call_a", True)
        await session.check()
        assert session.record.effects == ["delete /a"]
        check_files(session.record.inputs["Lead"][-1].files, *FILES)
