"""Record a run of a LangGraph graph that its own program has started. Imports the framework."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from turnlog.adapters.langgraph_runner import STREAM_MODES
from turnlog.adapters.part_output import PartOutput
from turnlog.errors import CallerError
from turnlog.parse.foreign.langgraph import LangGraphTranslator

OWN_OPTIONS = frozenset({"stream_mode", "subgraphs", "version"})


async def record_stream(
    output: PartOutput, graph: Any, graph_input: Any, config: Any, options: Mapping[str, Any]
) -> AsyncIterator[Any]:
    if owned := OWN_OPTIONS & options.keys():
        raise CallerError(f"expected no {min(owned)}: the recording needs its own")
    translator = LangGraphTranslator(output.builder, output.root, {}, [])
    stream = graph.astream(
        graph_input, config, stream_mode=STREAM_MODES, subgraphs=True, version="v2", **options
    )
    async for part in stream:
        await output.report(translator.feed, part)
        yield part
    await output.report(translator.finish)
