"""Contracts of a store: private blobs, which only the runtime that stored them reads."""

from turnlog.errors import NotFound
from turnlog.log import Blob
from turnlog.log.jobs import PutBlob
from turnlog.testing.harness import StoreFactory, expect_raises, open_harness

STATE = b"what only a runtime can read"
MEDIA_TYPE = "application/octet-stream"


async def private_blob_round_trip(make_store: StoreFactory) -> None:
    """Only `get_private_blob` returns a private blob, and only with its own session."""
    async with open_harness(make_store) as harness:
        log = harness.log
        name = await log.put_blob(harness.session, STATE, MEDIA_TYPE, private=True)
        stored = Blob(MEDIA_TYPE, STATE, is_private=True)
        assert await log.get_private_blob(harness.session, name) == stored
        await expect_raises(NotFound, log.get_blob(name))
        await expect_raises(NotFound, log.get_private_blob("sess_other", name))
        await expect_raises(NotFound, log.get_private_blob(harness.session[:-1], name))
        await expect_raises(NotFound, log.get_private_blob(harness.session, f"{name}0"))
        await harness.expect_undamaged()


async def private_and_public_blobs_of_equal_content(make_store: StoreFactory) -> None:
    """A private and a public blob of the same content have different names, and neither changes the other."""
    async with open_harness(make_store) as harness:
        log = harness.log
        private = await log.put_blob(harness.session, STATE, MEDIA_TYPE, private=True)
        public = await harness.put_blob(STATE, "text/plain")
        again = await log.put_blob(harness.session, STATE, MEDIA_TYPE, private=True)
        assert len({private, public, again}) == 3
        assert await log.get_blob(public) == Blob("text/plain", STATE)
        await expect_raises(NotFound, log.get_private_blob(harness.session, public))
        await expect_raises(NotFound, log.get_blob(private))
        assert await log.blob_names(harness.session) == [public]
        assert await log.private_blob_names(harness.session) == sorted([private, again])
        assert await log.private_blob_names("sess_other") == []


async def blob_stays_private(make_store: StoreFactory) -> None:
    """A name that is stored keeps its content, and stays private or public."""
    async with open_harness(make_store) as harness:
        log = harness.log
        private = await log.put_blob(harness.session, STATE, MEDIA_TYPE, private=True)
        public = await harness.put_blob(STATE, "text/plain")
        await log.run_job(PutBlob(private, Blob("text/html", STATE)))
        await log.run_job(PutBlob(public, Blob("text/html", STATE, is_private=True)))
        await expect_raises(NotFound, log.get_blob(private))
        assert (await log.get_private_blob(harness.session, private)).media_type == MEDIA_TYPE
        assert await log.get_blob(public) == Blob("text/plain", STATE)


async def drop_private_blobs_by_name(make_store: StoreFactory) -> None:
    """The store removes named private blobs of one session, no public one and none of another session."""
    async with open_harness(make_store) as harness:
        log = harness.log
        names = [await log.put_blob(harness.session, STATE, MEDIA_TYPE, private=True) for _ in range(3)]
        public = await harness.put_blob(STATE, "text/plain")
        other = await log.put_blob("sess_other", STATE, MEDIA_TYPE, private=True)
        unknown = f"{harness.session}/private-{'0' * 32}"
        dropped = [names[0], names[0], names[1], public, other, unknown]
        assert await log.drop_private_blobs(harness.session, dropped) == 2
        assert await log.drop_private_blobs(harness.session, dropped) == 0
        assert await log.private_blob_names(harness.session) == [names[2]]
        assert await log.private_blob_names("sess_other") == [other]
        await expect_raises(NotFound, log.get_private_blob(harness.session, names[0]))
        assert (await log.get_blob(public)).data == STATE
        await harness.expect_undamaged()


async def private_blobs_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the same private blobs, and they are private."""
    async with open_harness(make_store) as harness:
        session = harness.session
        name = await harness.log.put_blob(session, STATE, MEDIA_TYPE, private=True)
        dropped = await harness.log.put_blob(session, STATE, MEDIA_TYPE, private=True)
        await harness.log.drop_private_blobs(session, [dropped])
    async with open_harness(make_store) as harness:
        assert await harness.log.private_blob_names(session) == [name]
        assert (await harness.log.get_private_blob(session, name)).data == STATE
        await expect_raises(NotFound, harness.log.get_blob(name))
