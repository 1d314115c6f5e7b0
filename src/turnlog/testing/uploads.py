"""Contracts of a store: uploads, which are dropped unless an event names them."""

from turnlog.errors import NotFound
from turnlog.log.log import UPLOAD_MS
from turnlog.testing.harness import StoreFactory, expect_raises, open_harness

IMAGE = b"the bytes of an image"
MEDIA_TYPE = "image/png"
LATER_MS = 1 << 60


async def kept_upload_stays(make_store: StoreFactory) -> None:
    """An upload that is kept is a blob like any other. One that is not kept is dropped."""
    async with open_harness(make_store) as harness:
        log = harness.log
        kept = await log.put_upload(harness.session, IMAGE, MEDIA_TYPE)
        dropped = await log.put_upload(harness.session, b"another", "text/plain")
        assert await log.keep_uploads(harness.session, [kept]) == {kept: (MEDIA_TYPE, len(IMAGE))}
        assert await log.drop_uploads(LATER_MS) == 1
        assert (await log.get_blob(kept)).data == IMAGE
        await expect_raises(NotFound, log.get_blob(dropped))
        assert await log.keep_uploads(harness.session, [kept, dropped]) == {kept: (MEDIA_TYPE, len(IMAGE))}
        await harness.expect_undamaged()


async def keep_own_public_blobs_only(make_store: StoreFactory) -> None:
    """Keeping finds public blobs of the session, no private one and none of another session."""
    async with open_harness(make_store) as harness:
        log = harness.log
        public = await harness.put_blob(IMAGE, MEDIA_TYPE)
        private = await log.put_blob(harness.session, IMAGE, MEDIA_TYPE, private=True)
        other = await log.put_upload("sess_other", IMAGE, MEDIA_TYPE)
        unknown = f"{harness.session}/{'0' * 64}"
        names = [public, private, other, unknown]
        assert list(await log.keep_uploads(harness.session, names)) == [public]
        assert await log.drop_uploads(LATER_MS) == 1
        await expect_raises(NotFound, log.get_blob(other))


async def upload_of_stored_content(make_store: StoreFactory) -> None:
    """Content that is stored for an event stays, whether the same content is uploaded before or after."""
    async with open_harness(make_store) as harness:
        log = harness.log
        before = await harness.put_blob(IMAGE, MEDIA_TYPE)
        assert await log.put_upload(harness.session, IMAGE, "text/plain") == before
        after = await log.put_upload(harness.session, b"another", MEDIA_TYPE)
        assert await harness.put_blob(b"another", "text/plain") == after
        assert await log.drop_uploads(LATER_MS) == 0
        assert (await log.get_blob(before)).media_type == MEDIA_TYPE
        assert (await log.get_blob(after)).data == b"another"


async def repeated_upload_is_new(make_store: StoreFactory) -> None:
    """The time of the last upload of a content counts."""
    async with open_harness(make_store) as harness:
        log = harness.log
        name = await log.put_upload(harness.session, IMAGE, MEDIA_TYPE)
        first_ms = harness.now_ms
        harness.now_ms += 10_000
        assert await log.put_upload(harness.session, IMAGE, MEDIA_TYPE) == name
        assert await log.drop_uploads(first_ms + 1) == 0
        assert await log.drop_uploads(harness.now_ms + 1) == 1


async def old_uploads_are_dropped(make_store: StoreFactory) -> None:
    """An upload drops those that were not kept within a day, of any session."""
    async with open_harness(make_store) as harness:
        log = harness.log
        old = await log.put_upload("sess_other", IMAGE, MEDIA_TYPE)
        harness.now_ms += UPLOAD_MS + 1
        new = await log.put_upload(harness.session, IMAGE, MEDIA_TYPE)
        await expect_raises(NotFound, log.get_blob(old))
        assert (await log.get_blob(new)).data == IMAGE


async def uploads_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store still knows which blobs were not kept."""
    async with open_harness(make_store) as harness:
        session = harness.session
        name = await harness.log.put_upload(session, IMAGE, MEDIA_TYPE)
        kept = await harness.log.put_upload(session, b"kept", MEDIA_TYPE)
        await harness.log.keep_uploads(session, [kept])
    async with open_harness(make_store) as harness:
        assert await harness.log.drop_uploads(LATER_MS) == 1
        await expect_raises(NotFound, harness.log.get_blob(name))
        assert (await harness.log.get_blob(kept)).data == b"kept"
