"""The addresses of blobs as events store them: relative to the server, `api/blobs/<session id>/<hash>`."""

from turnlog.events.blob_addresses import BLOB_URL_PREFIX


def blob_url(name: str) -> str:
    return BLOB_URL_PREFIX + name


def blob_name(url: str) -> str | None:
    """Return the name of a blob, or None if this is not an address of one. A leading slash is accepted."""
    path = url.removeprefix("/")
    return path.removeprefix(BLOB_URL_PREFIX) if path.startswith(BLOB_URL_PREFIX) else None
