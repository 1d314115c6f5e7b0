"""Runners of sessions without a pool: each claims its session as an owner of its own."""

import asyncio
from typing import Any

from turnlog.agents.claude.runtime import ClaudeRuntime
from turnlog.agents.runtime.agent_runtime import AgentRuntime
from turnlog.agents.runtime.session_folds import AppState, SessionFolds
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import RunnerOptions, RuntimeDefinition
from turnlog.events import CATALOG, Catalog
from turnlog.ids import new_process_id
from turnlog.log import Log
from turnlog.log.jobs import EndOwner


async def claim_runner(
    log: Log,
    session_id: str,
    definition: RuntimeDefinition,
    catalog: Catalog = CATALOG,
    app_state: AppState | None = None,
    **options: Any,
) -> SessionRunner:
    """Claim a session and build its runner, which is not open yet."""
    lease = await log.leases.claim(session_id, new_process_id())
    assert lease is not None, "another owner has the session"
    folds = SessionFolds(log, session_id, catalog, app_state)
    return SessionRunner(log, lease, folds, definition, options=RunnerOptions(**options))


async def open_runner(
    log: Log, session_id: str, definition: RuntimeDefinition, **options: Any
) -> SessionRunner:
    runner = await claim_runner(log, session_id, definition, **options)
    await runner.open()
    return runner


def agent_runtime(runner: SessionRunner) -> AgentRuntime:
    assert isinstance(runner.runtime, AgentRuntime)
    return runner.runtime


def claude_runtime(runner: SessionRunner) -> ClaudeRuntime:
    assert isinstance(runner.runtime, ClaudeRuntime)
    return runner.runtime


async def kill_runner(runner: SessionRunner) -> None:
    """End a runner as the end of its process would: its tasks are gone, its lease is not released."""
    task = runner._follow_task
    runner._is_stopping = True
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await runner.end_tasks()
    runner.runtime.abandon()
    await runner.log.run_job(EndOwner(runner.lease.owner))
