"""No cache between a person and the server stores an answer that belongs to that person."""

from tests.security.apps import plain
from tests.security.desk import Desk, bare, desk, run
from tests.security.routes import PAGE, every_route

PRIVATE = (
    "no-store",
    "private, max-age=31536000, immutable",  # blobs, known by their hash
    "private, no-cache",  # a stream, which is asked for again with its ETag
)


async def cache_controls(at: Desk) -> dict[str, str]:
    """Return the Cache-Control of every route that is not a file of the page."""
    asks = [ask for ask in await every_route(at, "root") if ask.path not in PAGE]
    answers = [(ask, await at.ask("root", ask.method, ask.path, ask.body)) for ask in asks]
    return {ask.route: answer.header("cache-control") for ask, answer in answers}


def test_answers_of_every_route_are_not_stored_by_caches() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for route, control in (await cache_controls(at)).items():
                assert control in PRIVATE, route
            refused = await at.get(None, "/api/me")
            assert (refused.status, refused.header("cache-control")) == (401, "no-store")

    run(scenario())


def test_control_without_the_headers_answers_may_be_stored() -> None:
    async def scenario() -> None:
        async with desk(plain, change=bare) as at:
            controls = await cache_controls(at)
            assert [route for route, control in controls.items() if control not in PRIVATE]

    run(scenario())


def test_paths_with_a_slash_too_many_are_not_redirected() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for path in ("/api/me/", "/healthz/", "/sign-in/"):
                assert (await at.get("ada", path)).status == 404, path

    run(scenario())
