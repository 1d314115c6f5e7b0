"""The keys that the server puts into an ASGI scope, so that its layers find them."""

IDENTITY_KEY = "turnlog.known"  # the `Identity` of the caller; set by the authentication check
PRINCIPAL_KEY = "turnlog.principal"  # the caller's `Principal`, for the access log
SESSION_KEY = "turnlog.session"  # the id of the session that a request is about, for the access log
TURN_KEY = "turnlog.turn"  # the trace of the turn that a request is about, for the access log
SENT_BYTES_KEY = "turnlog.bytes"  # bytes of a stream, which are written past `send`, for the access log
REQUEST_CHARGE_KEY = "turnlog.account"  # the `RequestCharge` that runs and pays for a request
CONNECTION_KEY = "turnlog.connection"  # the `StreamConnection` that a response may write to directly
RESERVE_KEY = "turnlog.crowded"  # the `ConnectionLimit`, if the connection is one of the reserve
