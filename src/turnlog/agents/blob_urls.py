"""The addresses of blobs as events store them: relative to the server, `api/blobs/<session id>/<hash>`."""

from turnlog.log.blobs import BLOB_URL_PREFIX

_PREFIX = BLOB_URL_PREFIX.decode()


def blob_url(name: str) -> str:
    return _PREFIX + name


def blob_name(url: str) -> str | None:
    """Return the name of a blob, or None if this is not an address of one. A leading slash is accepted."""
    path = url.removeprefix("/")
    return path.removeprefix(_PREFIX) if path.startswith(_PREFIX) else None
