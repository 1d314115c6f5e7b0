"""The header `Idempotency-Key`: a request that is sent again under its key has its effect once."""

from hashlib import sha256

from turnlog.errors import BadInput

MAX_IDEMPOTENCY_KEY_CHARS = 256


def check_idempotency_key(key: str | None) -> str | None:
    """Return the key, or None if the request has none. Raise `BadInput` if it is empty or too long."""
    if key is not None and not 0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
        raise BadInput(
            f"expected an Idempotency-Key of 1 to {MAX_IDEMPOTENCY_KEY_CHARS} characters, got {len(key)}"
        )
    return key


def make_idempotent_event_id(sender: str, key: str | None) -> str | None:
    """Return the event id that this sender's key always leads to; None without a key."""
    if check_idempotency_key(key) is None:
        return None
    # The length of the sender keeps two pairs of sender and key from giving the same text.
    return "evt_" + sha256(f"{len(sender)}:{sender}:{key}".encode()).hexdigest()[:40]
