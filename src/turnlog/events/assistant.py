"""Complete output of the assistant: texts, thinking, other blocks, views and files."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta, ValidationError, to_builtins

from turnlog.errors import quote
from turnlog.events.payload import Count, Name, OpaqueId, Origins, Payload, Record

if TYPE_CHECKING:
    from turnlog.events.view_nodes import Root

ASSISTANT_ORIGINS: frozenset[str] = frozenset({"model", "app", "tool", "system"})


class Citation(Record, frozen=True, kw_only=True):
    """One source of a text. Which fields are set depends on `type`, the provider's name of its kind."""

    type: Name
    cited_text: str
    document_index: Count | None = None
    document_title: str | None = None
    file_id: OpaqueId | None = None
    start_char_index: Count | None = None
    end_char_index: Count | None = None
    start_page_number: Count | None = None
    end_page_number: Count | None = None
    start_block_index: Count | None = None
    end_block_index: Count | None = None
    url: str | None = None
    title: str | None = None
    encrypted_index: str | None = None
    source: str | None = None
    search_result_index: Count | None = None


class AssistantMessage(Payload, frozen=True, kw_only=True):
    """A complete text of the assistant: the final event of a text block, without tags and markers."""

    TYPE: ClassVar = "assistant.message"
    ORIGINS: ClassVar[Origins] = ASSISTANT_ORIGINS
    NAMES_CHANNEL: ClassVar = True
    EXAMPLE: ClassVar = {
        "text": "Got it. Please confirm the entry:",
        "block_id": "blk_1",
        "message_id": "msg_1",
    }

    text: str
    citations: tuple[Citation, ...] = ()
    block_id: OpaqueId | None = None
    message_id: Annotated[OpaqueId | None, Meta(description="The provider's id of the whole reply.")] = None
    speaker: Name | None = None
    channel: Name | None = None


class AssistantThinking(Payload, frozen=True, kw_only=True):
    """The model's thinking: the final event of a thinking block. Never parsed for tags."""

    TYPE: ClassVar = "assistant.thinking"
    ORIGINS: ClassVar[Origins] = frozenset({"model"})
    EXAMPLE: ClassVar = {"text": "The user asks about grass.", "signature": "c2ln", "block_id": "blk_0"}

    text: str
    signature: str | None = None
    redacted: Annotated[
        str | None, Meta(description="The provider's encrypted form; it is sent back unchanged.")
    ] = None
    block_id: OpaqueId | None = None
    message_id: OpaqueId | None = None


class AssistantBlock(Payload, frozen=True, kw_only=True):
    """A complete block of a kind that has no event of its own: the final event of an `other` block."""

    TYPE: ClassVar = "assistant.block"
    ORIGINS: ClassVar[Origins] = frozenset({"model"})
    EXAMPLE: ClassVar = {
        "kind": "compaction",
        "data": {"type": "compaction", "content": "They talked about grass."},
        "block_id": "blk_2",
    }

    kind: Name
    data: Annotated[dict[str, Any], Meta(description="The provider's block; it is sent back unchanged.")]
    block_id: OpaqueId | None = None
    message_id: OpaqueId | None = None


NODES_KIND = "a2ui.v1"
RESERVED_KINDS = "a2ui."  # an unknown one is a version that no reader here can show


class View(Record, frozen=True, kw_only=True):
    """What a reader shows, by `kind`: `a2ui.v1` is a tree of nodes, `a2ui.v0.9` has messages of A2UI.

    A later view with the same `view_id` replaces it, an empty tree removes it. Messages of A2UI without
    `createSurface` update it. The tree of any other kind is shown as JSON.
    """

    kind: Name
    view_id: OpaqueId
    tree: dict[str, Any]
    title: str | None = None

    @classmethod
    def of(cls, view_id: str, tree: "Root", title: str | None = None) -> "View":
        """Build a view of these nodes (`turnlog.events.view_nodes`)."""
        return cls(kind=NODES_KIND, view_id=view_id, tree=to_builtins(tree), title=title)

    @classmethod
    def a2ui(cls, view_id: str, messages: Sequence[Mapping[str, Any]], title: str | None = None) -> "View":
        """Build a view of messages of A2UI v0.9, whose `surfaceId` is the `view_id`."""
        return cls(kind="a2ui.v0.9", view_id=view_id, tree={"messages": list(messages)}, title=title)


class AssistantView(Payload, frozen=True, kw_only=True):
    """The assistant showed a form, a table or another view; actions on it come back as `ui.action`."""

    TYPE: ClassVar = "assistant.view"
    ORIGINS: ClassVar[Origins] = ASSISTANT_ORIGINS
    EXAMPLE: ClassVar = {"view": {"kind": "a2ui.v1", "view_id": "view_1", "tree": {}}}

    view: View

    def __post_init__(self) -> None:
        if not self.view.kind.startswith(RESERVED_KINDS):
            return
        find_error = VIEW_CHECKS.get(self.view.kind)
        if find_error is None:
            known = ", ".join(VIEW_CHECKS)
            raise ValidationError(f"expected one of {known}, got {quote(self.view.kind)} - at `$.view.kind`")
        error = find_error(self.view)
        if error is not None:
            sentence, path = error
            raise ValidationError(f"{sentence} - at `$.view.tree{path[1:]}`")


def _check_nodes(view: View) -> tuple[str, str] | None:
    from turnlog.events.view_nodes import find_view_error  # keeps `import turnlog` fast

    return find_view_error(view.tree)


def _check_a2ui(view: View) -> tuple[str, str] | None:
    from turnlog.events.a2ui import find_a2ui_error  # keeps `import turnlog` fast

    return find_a2ui_error(view.view_id, view.tree)


VIEW_CHECKS: Mapping[str, Callable[[View], tuple[str, str] | None]] = {
    NODES_KIND: _check_nodes,
    "a2ui.v0.9": _check_a2ui,
}


class File(Record, frozen=True, kw_only=True):
    file_id: OpaqueId
    filename: str
    storage_location: str


class AssistantFiles(Payload, frozen=True, kw_only=True):
    """Files were created during the run, for instance in a code execution container."""

    TYPE: ClassVar = "assistant.files"
    ORIGINS: ClassVar[Origins] = ASSISTANT_ORIGINS
    EXAMPLE: ClassVar = {
        "files": [{"file_id": "file_01", "filename": "report.pdf", "storage_location": "api/blobs/1"}]
    }

    files: tuple[File, ...]


EVENTS = (AssistantMessage, AssistantThinking, AssistantBlock, AssistantView, AssistantFiles)
