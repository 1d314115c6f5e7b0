"""Record an agent that runs in this process, in a loop of its own: `turnlog.record(log, session)`."""

from turnlog.recording.log_target import LogTarget, record
from turnlog.recording.target import RecordingLost, RecordingStopped, RecordTarget
from turnlog.recording.turn import RecordedTurn

__all__ = ["LogTarget", "RecordTarget", "RecordedTurn", "RecordingLost", "RecordingStopped", "record"]
