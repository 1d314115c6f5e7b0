"""The runners of a process that owns no session: workers run the sessions, this process only appends."""

from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.errors import Conflict


class NoRunners:
    """Null object in place of `RunnerPool`, for web nodes."""

    owner = ""  # of no session

    def __len__(self) -> int:
        return 0

    def find(self, session_id: str) -> SessionRunner | None:
        return None

    def has_failed(self, session_id: str) -> bool:
        return False

    def start(self) -> None:
        pass

    async def claim_unowned(self) -> None:
        pass

    async def open(self, session_id: str) -> SessionRunner:
        raise Conflict(f"a worker owns {session_id}", -1)

    async def give_up(self, session_id: str) -> bool:
        return True

    def retry(self, session_id: str) -> None:
        pass

    async def drain(self, timeout_s: float) -> None:
        pass

    async def close(self) -> None:
        pass
