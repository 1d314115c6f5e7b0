"""Run a function inside a transaction of a local store, as no job of the package does."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from turnlog.log import Log
from turnlog.log.jobs import Job, JobResult
from turnlog.log.local_jobs import JOB_HANDLERS


class RunWork(NamedTuple):
    """Call a function with the store."""

    work: Callable[[Any], Any]
    session_id: str = ""


JOB_HANDLERS[RunWork] = lambda store, job: JobResult(job.work(store))


def work_job(work: Callable[[Any], Any]) -> Job:
    return cast(Job, RunWork(work))


async def transact(log: Log, work: Callable[[Any], Any]) -> Any:
    return await log.run_job(work_job(work))
