"""A process that records one turn and prints a line after each step: `recorder URL TOKEN SESSION`."""

import asyncio
import sys

import turnlog


def say(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


async def record_steps(url: str, token: str, session: str) -> None:
    async with (
        turnlog.connect(url, token) as server,
        server.record(session, prompt="Hi", name="Support") as turn,
    ):
        say("begun")
        await turn.text("Let me ")
        await turn.text("look.")
        say("text")
        call = await turn.call("search", {"q": "grass"})
        await turn.complete_message()
        say("call")
        async with turn.child("Searcher", call_id=call) as searcher:
            await turn.text("Green.", agent=searcher)
            say("child")
        await turn.result(call, "green")
        say("result")
        await turn.text("It is green.")
        approval = await turn.call("paint", {"colour": "red"})
        await turn.complete_message()
        say("asked")
        await turn.ask_approval(approval)


if __name__ == "__main__":
    asyncio.run(record_steps(*sys.argv[1:]))
