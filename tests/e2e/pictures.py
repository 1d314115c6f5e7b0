"""Pictures of a page as small PNG files: at most 256 colours, which is more than a console needs."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The most frequent colours are the palette, no two alike; every other pixel gets the nearest of them.
REDUCE = """async (data) => {
  const PLENTY = 2000; // pixels: no shade of a letter
  const NEAR = 40; // a square of a distance that nobody sees
  const image = await createImageBitmap(await (await fetch(data)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const pixels = new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const parts = (pixel) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  const far = ([r, g, b], [x, y, z]) => (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
  const palette = [];
  const colours = [];
  for (const [pixel, count] of [...counts].sort(([, one], [, other]) => other - one)) {
    const colour = parts(pixel);
    const apart = count > PLENTY ? 0 : NEAR;
    if (colours.length === 256 || colours.some((known) => far(known, colour) < apart)) continue;
    palette.push(pixel);
    colours.push(colour);
  }
  const nearest = (pixel) => {
    const wanted = parts(pixel);
    const distances = colours.map((colour) => far(colour, wanted));
    return distances.indexOf(Math.min(...distances));
  };
  const known = new Map(palette.map((pixel, at) => [pixel, at]));
  const indexes = pixels.map((pixel) => known.get(pixel) ?? known.set(pixel, nearest(pixel)).get(pixel));
  let text = "";
  for (let at = 0; at < indexes.length; at += image.width) {
    text += String.fromCharCode(...indexes.subarray(at, at + image.width));
  }
  return { width: image.width, height: image.height, colours: colours.flat(), indexes: btoa(text) };
}"""


def take(browser: Browser, page: Page, path: Path) -> None:
    """Write what a page looks like. Colours are counted by another page, which may read a data: address."""
    data = base64.b64encode(page.screenshot(animations="disabled", caret="hide")).decode()
    counting = browser.new_page()
    path.write_bytes(png(counting.evaluate(REDUCE, f"data:image/png;base64,{data}")))
    counting.close()


def png(picture: Any) -> bytes:
    """A picture with a palette, as a file."""
    width, height = picture["width"], picture["height"]
    pixels = base64.b64decode(picture["indexes"])
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = [
        (b"IHDR", head),
        (b"PLTE", bytes(picture["colours"])),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(chunk(name, content) for name, content in body)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def size(path: Path) -> tuple[int, int]:
    """Width and height, as the head of a PNG says."""
    head = path.read_bytes()[:24]
    assert head[:8] == SIGNATURE, f"{path.name} is no PNG"
    width, height = struct.unpack(">II", head[16:24])
    return width, height
