"""Data URIs in place of the addresses of blobs, for the block dialects. Pure: the bytes come in.

A dialect converts an event as it is. The server asks which blobs of an event its reader gets in the message
itself, reads them, and converts the event with data URIs. By default that is an image whose data URI fits
into one message; with `images=inline` it is every image.
"""

from base64 import b64encode
from collections.abc import Mapping

from msgspec import structs

from turnlog.events import Payload, ToolResult, UnknownPayload
from turnlog.events.tool import Image
from turnlog.wire.chunks import available_payload_bytes
from turnlog.wire.dialects.base import DialectOptions

LONGEST_AGENT = "x" * 64  # whatever the name of the agent: an image fits or does not


def addresses_to_inline(payload: Payload | UnknownPayload, options: DialectOptions) -> list[str]:
    """Return the addresses of the blobs that the event's messages should contain."""
    if not isinstance(payload, ToolResult):
        return []
    addresses = [image.src for image in payload.images if is_inlined(payload, image, options)]
    return list(dict.fromkeys(addresses))


def is_inlined(result: ToolResult, image: Image, options: DialectOptions) -> bool:
    if image.src.startswith(("data:", "http:", "https:")):
        return False
    if options.images == "inline":
        return True
    if image.size_bytes is None:
        return False
    fields = {"id": result.call_id, "name": result.tool, "src": "", "media_type": image.media_type}
    room = available_payload_bytes("tool_result_image", LONGEST_AGENT, dict(fields))
    prefix_bytes = len(data_uri_prefix(image.media_type))
    return prefix_bytes + encoded_size(image.size_bytes) <= room


def encoded_size(size_bytes: int) -> int:
    """Return the length of so many bytes in base64."""
    return 4 * -(-size_bytes // 3)


def data_uri_prefix(media_type: str) -> str:
    return f"data:{media_type};base64,"


def inline_images(payload: ToolResult, blobs: Mapping[str, bytes]) -> ToolResult:
    """Return the result with data URIs in place of the addresses that are in `blobs`."""
    images: list[Image] = []
    for image in payload.images:
        data = blobs.get(image.src)
        if data is not None:
            image = structs.replace(
                image, src=data_uri_prefix(image.media_type) + b64encode(data).decode(), size_bytes=None
            )
        images.append(image)
    return structs.replace(payload, images=tuple(images))
