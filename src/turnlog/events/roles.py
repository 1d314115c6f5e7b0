"""The roles that Turnlog itself knows; an application defines all others.

A *session role* is in the log: `session.member` grants it, in one session. A *server role* is granted by the
server's configuration alone (a file of tokens, or a map of a provider's roles) and holds in every session for
as long as the principal has it. An operator who acts in a session is recorded there as a member with the role
`operator`, so that the log shows who acted by which right. That record grants nothing.
"""

OWNER = "owner"  # reads every channel of its session and changes the members
OPERATOR = "operator"  # the owner of every session
EXECUTOR = "executor"  # answers tool calls for another process
SOURCE = "source"  # records agents that run elsewhere
SERVER_ROLES = frozenset({OPERATOR, EXECUTOR, SOURCE})


def add_implied_roles(roles: frozenset[str]) -> frozenset[str]:
    """Return the roles and those they include: an operator is an owner."""
    return roles | {OWNER} if OPERATOR in roles else roles
