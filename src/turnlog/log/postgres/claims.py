"""Lease jobs on PostgreSQL: owners are rows of `worker` with a time that the engine's clock decides.

An owner is alive while its time has not passed. A renewal, and a claim, moves the time by the lease time.
`since` is when the owner's unbroken renewals began: they are broken when half of the lease time passes
between two of them. An owner whose row is gone has ended. An owner whose time has passed may only be cut off
from the engine, as all others were. So only an owner that was never cut off for one lease time claims from
it: by then each owner that is still alive has renewed.
"""

from datetime import timedelta
from typing import NamedTuple

from turnlog.log.jobs import (
    ClaimLease,
    ClaimWanted,
    EndOwner,
    JobResult,
    RenewOwner,
    SaveSeen,
    SaveStates,
)
from turnlog.log.leases import Lease, LeaseRow, claimed_row
from turnlog.log.local_jobs import JobHandlers, require_record
from turnlog.log.postgres.connections import Connection, Query
from turnlog.log.postgres.rows import transpose
from turnlog.log.postgres.schema import RECORD_COLUMNS, decode_record_row
from turnlog.log.postgres.transaction import EngineTransaction
from turnlog.log.records import SessionRecord

RENEW: Query = """insert into worker (owner, process, node, since, until)
    values (%(owner)b, %(process)b, %(node)b, now(), now() + %(lease)b)
    on conflict (owner, process) do update set until = excluded.until, node = excluded.node,
        since = case when worker.until > now() + %(lease)b / 2 then worker.since else excluded.since end
    returning since <= now() - %(lease)b as may_replace"""
# Whether the owner of a lease is alive, has ended, or has not renewed for a lease time.
SELECT_OWNER_STATE: Query = """select case when worker.owner is null then 'ended'
        when worker.until > now() then 'alive' else 'silent' end
    from lease left join worker on worker.owner = lease.owner and worker.process = lease.process
    where lease.session = %b"""
# The node of the last owner has a moment's advantage: it has the files of a Claude Code process.
IS_FREE: Query = """(lease.node in ('', %(node)b) or {since} <= %(now_ms)b - %(preference_ms)b
    or not exists (select 1 from worker where worker.node = lease.node and until > now()))"""
# A few more candidates than needed: other owners may have locked some. A row that another owner has claimed
# since the candidates were found has another fence, and one that was released has no owner.
CLAIM_WANTED: Query = f"""
    with candidate as materialized (
        (select session, lease.owner, lease.fence from lease join session as one on one.name = lease.session
            where owner is null and wanted_at is not null and not closed and {{of_apps}}
                and {IS_FREE.replace("{since}", "wanted_at")}
            order by wanted_at limit %(candidates)b)
        union
        (select session, lease.owner, lease.fence from lease join session as one on one.name = lease.session
            where owner is null and wake_at <= %(now_ms)b and not closed and {{of_apps}}
                and {IS_FREE.replace("{since}", "wake_at")}
            order by wake_at limit %(candidates)b)
        union
        (select session, lease.owner, lease.fence from lease join session as one on one.name = lease.session
            left join worker on worker.owner = lease.owner and worker.process = lease.process
            where lease.owner is not null and not closed and {{of_apps}}
                and (until is null or (%(may_replace)b and until <= now()))
            order by claimed_at limit %(candidates)b)
    ), due as (
        select lease.session, session.id, session.fence as record_fence,
            case when lease.owner is not null then claimed_at
                else least(coalesce(wanted_at, wake_at), coalesce(wake_at, wanted_at)) end as due_ms
        from candidate join lease on lease.session = candidate.session
            join session on session.name = lease.session
        where lease.fence = candidate.fence and lease.owner is not distinct from candidate.owner
            and (lease.owner is not null or wanted_at is not null or wake_at <= %(now_ms)b)
            and not session.closed
        order by due_ms limit %(limit)b for update of lease, session skip locked
    ), claimed as (
        update lease set owner = %(owner)b, process = %(process)b,
            fence = greatest(lease.fence, due.record_fence) + 1,
            attempts = attempts + (lease.owner is not null)::integer, wake_at = null,
            claimed_at = %(now_ms)b, claim = %(claim)b, node = %(node)b
        from due where lease.session = due.session
        returning lease.*, due.id, due.due_ms
    ), fenced as (
        update session set fence = claimed.fence, revision = revision + 1
        from claimed where session.id = claimed.id
        returning {", ".join(f"session.{column}" for column in RECORD_COLUMNS.split(", "))}, due_ms
    )
    select claimed.fence, claimed.seen, claimed.attempts, {
    ", ".join(f"fenced.{column}" for column in RECORD_COLUMNS.split(", "))
}
    from claimed join fenced using (id) order by claimed.due_ms, claimed.session"""
ALL_APPS: Query = "true"
SOME_APPS: Query = "app = any(%(apps)b)"
SELECT_CLAIMED: Query = f"""select lease.fence, seen, attempts, {
    ", ".join(f"session.{column}" for column in RECORD_COLUMNS.split(", "))
}
    from lease join session on session.name = lease.session
    where lease.owner = %b and process = %b and claim = any(%b::text[])"""
SPARE_CANDIDATES = 16
PREFERENCE_S = 5.0  # that a wanted session waits for the node of its last owner, if that is alive
SAVE_NODE: Query = "update lease set node = %b where session = %b"


class OwnerClaims(NamedTuple):
    """The lease jobs of one store: of owners of this process, with this lease time."""

    process: str
    lease_s: float
    node: str
    lost_claims: set[str]  # keys of claims whose callers got an error, and that may be committed

    def handlers(self) -> JobHandlers:
        return {
            ClaimLease: self.claim_lease,
            ClaimWanted: self.claim_wanted,
            SaveSeen: self.save_seen,
            SaveStates: self.save_states,
            RenewOwner: self.renew,
            EndOwner: self.end,
        }

    def renew(self, transaction: EngineTransaction, job: RenewOwner) -> JobResult:
        self._renew(transaction, job.owner, "" if job.is_draining else self.node)
        return JobResult()

    def _renew(self, transaction: EngineTransaction, owner: str, node: str) -> bool:
        """Move the time of an owner. Return whether it may claim from an owner whose time has passed."""
        values = {
            "owner": owner,
            "process": self.process,
            "node": node,
            "lease": timedelta(seconds=self.lease_s),
        }
        [(may_replace,)] = transaction.reader.select(RENEW, values)
        return bool(may_replace)

    def end(self, transaction: EngineTransaction, job: EndOwner) -> JobResult:
        values = [job.owner, self.process]
        transaction.connection.execute("delete from worker where owner = %b and process = %b", values)
        query: Query = "select 1 from lease where owner = %b and process = %b limit 1"
        if transaction.reader.select(query, values):
            transaction.is_wanted = True  # its sessions need another owner
        return JobResult()

    def claim_lease(self, transaction: EngineTransaction, job: ClaimLease) -> JobResult:
        record = require_record(transaction, job.session_id)
        may_replace = self._renew(transaction, job.owner, self.node)
        row = transaction.get_lease(job.session_id) or LeaseRow(job.session_id)
        if row.owner is not None and (row.owner, row.process) != (job.owner, self.process):
            [(state,)] = transaction.reader.select(SELECT_OWNER_STATE, [job.session_id])
            if state == "alive" or (state == "silent" and not may_replace):
                return JobResult(None, (record,))

        claimed = claimed_row(row, job.owner, self.process, record.fence, job.now_ms)
        transaction.put_lease(claimed)
        transaction.connection.execute(SAVE_NODE, [self.node, job.session_id])
        record = record.replace(fence=claimed.fence, revision=record.revision + 1)
        transaction.put_record(record)
        return JobResult(claimed.lease(), (record,))

    def claim_wanted(self, transaction: EngineTransaction, job: ClaimWanted) -> JobResult:
        reader = transaction.reader
        claim = transaction.job_key
        may_replace = self._renew(transaction, job.owner, self.node)
        rows = []
        if claim in transaction.unconfirmed or self.lost_claims:
            # The claims of a commit whose end was not reported have no other taker.
            rows = reader.select(SELECT_CLAIMED, [job.owner, self.process, [claim, *self.lost_claims]])
        if not rows and job.limit > 0:
            values = {
                "owner": job.owner,
                "process": self.process,
                "now_ms": job.now_ms,
                "apps": None if job.apps is None else sorted(job.apps),
                "limit": job.limit,
                "candidates": job.limit + SPARE_CANDIDATES,
                "claim": claim,
                "may_replace": may_replace,
                "node": self.node,
                "preference_ms": int(PREFERENCE_S * 1000),
            }
            of_apps = ALL_APPS if job.apps is None else SOME_APPS
            rows = reader.select(CLAIM_WANTED.replace("{of_apps}", of_apps), values)

        leases: list[Lease] = []
        records: list[SessionRecord] = []
        for fence, seen, attempts, *row in rows:
            stored = decode_record_row(tuple(row))
            session_id = stored.record.session_id
            leases.append(Lease(session_id, job.owner, fence, seen, None, attempts))
            records.append(stored.record)
            transaction.note_claim(stored)
        return JobResult(leases, records)

    def save_seen(self, transaction: EngineTransaction, job: SaveSeen) -> JobResult:
        columns = transpose(sorted(job.seen)) or [[], []]
        transaction.connection.execute(
            """update lease set seen = new.seen from unnest(%b::text[], %b::bigint[]) as new(session, seen)
            where lease.session = new.session and owner = %b and process = %b""",
            [*columns, job.owner, self.process],
        )
        return JobResult()

    def save_states(self, transaction: EngineTransaction, job: SaveStates) -> JobResult:
        columns = transpose(sorted(job.states)) or [[], []]
        transaction.connection.execute(
            """update lease set state = new.state from unnest(%b::text[], %b::text[]) as new(session, state)
            where lease.session = new.session and owner = %b and process = %b""",
            [*columns, job.owner, self.process],
        )
        return JobResult()


def forget_old_owners(connection: Connection) -> None:
    """Remove owners that have been silent for a day: processes that were killed leave their row."""
    connection.execute("delete from worker where until < now() - interval '1 day'")
