"""The size of an image by its header, and images that are too large to decode."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from turnlog.app import image_headers
from turnlog.app.image_headers import MAX_JPEG_STEPS, SIZE_READERS, check_image_size, read_jpeg_size
from turnlog.errors import BadInput

Build = Callable[[int, int], bytes]
SCREENS = Path(__file__).parents[3] / "docs" / "screens"
EXIF = b"\xff\xe1" + pack(">H", 2 + 22) + b"Exif\0\0" + b"\xff\xc0\0\x11\x08\0\1\0\1" + b"\0" * 7


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\2\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + pack("<HH", width, height) + b"\0\0\0"


def jpeg(width: int, height: int, before: bytes = EXIF, frame: int = 0xC0) -> bytes:
    return b"\xff\xd8" + before + pack(">BBHBHH", 0xFF, frame, 17, 8, height, width) + b"\3" + b"\0" * 9


def webp(chunk: bytes) -> bytes:
    return b"RIFF" + pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 " + pack("<I", 10) + b"\x30\1\0\x9d\x01\x2a" + pack("<HH", width, height))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L" + pack("<I", 9) + b"\x2f" + pack("<I", width - 1 | height - 1 << 14) + b"\0" * 4)


def webp_extended(width: int, height: int) -> bytes:
    size = pack("<I", width - 1)[:3] + pack("<I", height - 1)[:3]
    return webp(b"VP8X" + pack("<I", 10) + b"\0" * 4 + size)


BUILDERS: list[tuple[str, Build]] = [
    ("image/png", png),
    ("image/gif", gif),
    ("image/jpeg", jpeg),
    ("image/jpeg", lambda width, height: jpeg(width, height, b"\xff\x01\xff\xff" + EXIF, 0xC2)),
    ("image/webp", webp_lossy),
    ("image/webp", webp_lossless),
    ("image/webp", webp_extended),
]


@pytest.mark.parametrize(("media_type", "build"), BUILDERS)
def test_the_header_says_the_size(media_type: str, build: Build) -> None:
    for size in ((1, 1), (640, 480), (3, 16383)):
        assert SIZE_READERS[media_type](build(*size)) == size


@pytest.mark.parametrize(("media_type", "build"), BUILDERS)
def test_an_image_with_too_many_pixels_is_refused(media_type: str, build: Build) -> None:
    check_image_size(build(10_000, 5_000), media_type)
    with pytest.raises(BadInput, match="10000 x 5001 pixels; send one with at most 50 million"):
        check_image_size(build(10_000, 5_001), media_type)


@pytest.mark.parametrize(("media_type", "build"), BUILDERS)
def test_a_header_that_is_cut_off_is_no_error(media_type: str, build: Build) -> None:
    data = build(2, 2)
    for length in range(len(data)):
        check_image_size(data[:length], media_type)


def test_a_picture_of_the_documentation_has_a_size() -> None:
    for path in sorted(SCREENS.glob("*.png"))[:3]:
        size = SIZE_READERS["image/png"](path.read_bytes())
        assert size is not None
        assert min(size) > 300


def test_a_jpeg_without_a_frame_has_no_size_and_one_with_too_many_segments_is_refused() -> None:
    assert read_jpeg_size(b"\xff\xd8\xff\xda" + b"\0" * 20) is None
    assert read_jpeg_size(b"\xff\xd8" + b"\0" * 20) is None
    comment = b"\xff\xfe\0\2"
    assert read_jpeg_size(jpeg(9, 9, comment * (MAX_JPEG_STEPS - 1))) == (9, 9)
    for before in (comment * MAX_JPEG_STEPS, b"\xff" * MAX_JPEG_STEPS):
        with pytest.raises(BadInput, match="save it again"):
            read_jpeg_size(jpeg(9, 9, before))


def test_files_of_other_types_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_headers, "MAX_IMAGE_PIXELS", 0)
    check_image_size(b"%PDF-1.7", "application/pdf")
