"""The lines of a Claude Code program whose main agent another runtime starts and ends. Pure.

The parser shares the agents of an `AgentEventBuilder`: what it emits is in the output of the builder.
"""

from collections.abc import Sequence
from typing import cast

from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.claude.message import CliAgent, CliAgents
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import HostedTurn
from turnlog.parse.json_values import JsonObject


class HostedLines:
    """Reads the lines of one process. `parser` and `turn` have what it knows.

    `totals` are those of the process that had the conversation before.
    """

    def __init__(
        self, builder: AgentEventBuilder, root: RuntimeAgent, totals: JsonObject | None = None
    ) -> None:
        # The builder and the parser share the agents: each knows only what both kinds of messages have.
        agents = cast(CliAgents, builder.agents)
        self.turn = HostedTurn(cast(CliAgent, root), agents, builder.executor_for, builder.new_id)
        self.parser = CliParser(
            builder.new_id, make_text_parser=builder.make_text_parser, hosted_turn=self.turn
        )
        self.parser.skip_totals(totals or {})
        builder.begin_lines(root, self, totals)

    def is_of(self, agent: RuntimeAgent) -> bool:
        return self.turn.root is cast(CliAgent, agent)

    def feed(self, line: JsonObject, child_ids: Sequence[str]) -> None:
        self.turn.chosen_ids = list(child_ids)
        self.parser.feed_line(line)

    def take_child_ids(self) -> list[str]:
        return self.turn.take_used_ids()
