"""The size of an image in pixels, by its header: PNG, JPEG, GIF and WebP. Pure.

Nothing is decoded. A small file may declare a picture that takes gigabytes when a browser or a model decodes
it. The header of a JPEG is behind segments of other data, of which at most `MAX_JPEG_STEPS` are skipped.
"""

from collections.abc import Callable
from typing import NamedTuple

from turnlog.errors import BadInput

MAX_IMAGE_PIXELS = 50_000_000  # a camera of 48 megapixels; decoded, 200 MB
MAX_JPEG_STEPS = 1000  # cameras write about 20 segments
JPEG_FILL = 0xFF
JPEG_SCAN = 0xDA  # the picture begins: no header comes any more
JPEG_END = 0xD9
# Start of a frame, of any coding; the three others of this range are tables.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
MIN_WEBP_BYTES = 25  # the shortest of the three headers, VP8L
VP8_START = b"\x9d\x01\x2a"
VP8L_SIGNATURE = b"\x2f"
SIZE_BITS_14 = 0x3FFF


class ImageSize(NamedTuple):
    width: int
    height: int


def check_image_size(data: bytes, media_type: str) -> None:
    """Raise `BadInput` for an image that declares more than `MAX_IMAGE_PIXELS`.

    Files of other types, and images without a header that can be read, are not refused here.
    """
    read_size = SIZE_READERS.get(media_type)
    size = None if read_size is None else read_size(data)
    if size is not None and size.width * size.height > MAX_IMAGE_PIXELS:
        limit = f"{MAX_IMAGE_PIXELS // 1_000_000} million"
        raise BadInput(f"the image has {size.width} x {size.height} pixels; send one with at most {limit}")


def read_png_size(data: bytes) -> ImageSize | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return ImageSize(int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))


def read_gif_size(data: bytes) -> ImageSize | None:
    if len(data) < 10:
        return None
    return ImageSize(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))


def read_webp_size(data: bytes) -> ImageSize | None:
    if len(data) < MIN_WEBP_BYTES:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        return ImageSize(width, int.from_bytes(data[27:30], "little") + 1)
    if kind == b"VP8L" and data[20:21] == VP8L_SIGNATURE:
        bits = int.from_bytes(data[21:25], "little")
        return ImageSize((bits & SIZE_BITS_14) + 1, (bits >> 14 & SIZE_BITS_14) + 1)
    if kind == b"VP8 " and data[23:26] == VP8_START:
        width = int.from_bytes(data[26:28], "little") & SIZE_BITS_14
        return ImageSize(width, int.from_bytes(data[28:30], "little") & SIZE_BITS_14)
    return None


def read_jpeg_size(data: bytes) -> ImageSize | None:
    """Return the size that the first frame declares. Raise `BadInput` if too much comes before it."""
    position = 2
    for _ in range(MAX_JPEG_STEPS):
        if data[position : position + 1] != b"\xff" or position + 4 > len(data):
            return None
        marker = data[position + 1]
        if marker in (JPEG_SCAN, JPEG_END):
            return None
        if marker == JPEG_FILL:
            position += 1
        elif marker in JPEG_WITHOUT_LENGTH:
            position += 2
        elif marker in JPEG_FRAMES:
            height = int.from_bytes(data[position + 5 : position + 7])
            return ImageSize(int.from_bytes(data[position + 7 : position + 9]), height)
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4])
    raise BadInput("the image has too much data before its header; save it again without metadata")


SIZE_READERS: dict[str, Callable[[bytes], ImageSize | None]] = {
    "image/png": read_png_size,
    "image/jpeg": read_jpeg_size,
    "image/gif": read_gif_size,
    "image/webp": read_webp_size,
}
