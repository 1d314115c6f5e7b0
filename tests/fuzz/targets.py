"""Which fuzz targets exist: every module here with a function `target`, and its kept corpus."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Target = Callable[[bytes], None]

CORPUS = Path(__file__).parent / "corpus"
MAX_FILES = 190
MAX_BYTES = 200_000  # of one corpus
NAMES = ("claude_cli", "cursor", "gate", "markers", "messages_api", "sse", "tags")


def load_target(name: str) -> Target:
    found: Target = import_module(f"tests.fuzz.{name}").target
    return found


def corpus_of(name: str) -> list[Path]:
    return sorted((CORPUS / name).iterdir())
