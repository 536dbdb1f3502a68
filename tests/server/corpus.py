"""A corpus of odd and bad images and payloads, each with the one right answer to it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from tests.server.running import base64_of, data_uri, encoded

SIDE = 56
_ORIENTED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@dataclass(frozen=True)
class Case:
    """One document and what must come of it.

    Attributes:
        name: of the test.
        document: as sent.
        code: the refusal's code; None where it must be ranked.
        same_as: an image that it must tie with, where it must be ranked.
    """

    name: str
    document: Any
    code: str | None = "bad_image"
    same_as: Image.Image | None = None


def picture() -> Image.Image:
    """A picture without any symmetry, in colours that CMYK and palettes hold exactly."""
    pixels = np.full((SIDE, SIDE, 3), 255, np.uint8)
    pixels[:20, :30] = (255, 0, 0)
    pixels[40:, 10:20] = (0, 0, 255)
    pixels[30:35, 45:] = (0, 255, 0)
    return Image.fromarray(pixels)


def grey() -> Image.Image:
    return Image.fromarray(np.add.outer(np.arange(SIDE), 3 * np.arange(SIDE)).astype(np.uint8))


def cases() -> list[Case]:
    return [*_odd(), *_broken(), *_encodings(), *_shapes()]


def _ranked(name: str, content: bytes, same_as: Image.Image, media: str = "image/png") -> Case:
    return Case(name, data_uri(content, media), None, same_as)


def _odd() -> list[Case]:
    """Images that are unusual and right."""
    base, dull = picture(), grey()
    found = []
    for value, turned in _ORIENTED.items():
        exif = Image.Exif()
        exif[0x0112] = value
        stored = base if turned is None else base.transpose(turned)
        found.append(_ranked(f"exif orientation {value}", encoded(stored, exif=exif), base))
    sixteen = Image.fromarray(np.asarray(dull).astype(np.uint16) * 257)
    clear = base.convert("RGBA")
    clear.putalpha(Image.fromarray(np.where(np.asarray(base).min(axis=2) == 255, 0, 255).astype(np.uint8)))
    blank = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))
    few = base.quantize(4)
    see_through = few.copy()
    see_through.info["transparency"] = few.getpixel((SIDE - 1, 0))
    frames = [base, Image.new("RGB", (SIDE, SIDE), "black")]
    white = Image.new("RGB", (SIDE, SIDE), "white")
    dot = Image.new("RGB", (1, 1), "red")
    found += [
        _ranked("16-bit PNG", encoded(sixteen), dull.convert("RGB")),
        _ranked("16-bit TIFF", encoded(sixteen, "TIFF"), dull.convert("RGB"), "image/tiff"),
        _ranked("grey", encoded(dull), dull.convert("RGB")),
        _ranked(
            "grey and alpha", encoded(Image.merge("LA", (dull, Image.new("L", dull.size, 255)))), dull.convert("RGB")
        ),
        _ranked("one bit", encoded(Image.new("1", (SIDE, SIDE), 1)), white),
        _ranked("CMYK TIFF", encoded(base.convert("CMYK"), "TIFF"), base.convert("CMYK").convert("RGB"), "image/tiff"),
        _ranked("alpha on white", encoded(clear), base),
        _ranked("wholly transparent", encoded(blank), white),
        _ranked("palette", encoded(few), few.convert("RGB")),
        _ranked("palette with transparency", encoded(see_through), few.convert("RGB")),
        _ranked("GIF", encoded(few, "GIF"), few.convert("RGB"), "image/gif"),
        _ranked("animated GIF", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), base, "image/gif"),
        _ranked("animated PNG", encoded(frames[0], save_all=True, append_images=frames[1:]), base),
        _ranked(
            "animated WebP",
            encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True),
            base,
            "image/webp",
        ),
        _ranked("BMP", encoded(base, "BMP"), base, "image/bmp"),
        _ranked("PPM", encoded(base, "PPM"), base, "image/x-portable-pixmap"),
        _ranked("1 x 1", encoded(dot), Image.new("RGB", (SIDE, SIDE), "red")),
        _ranked("aspect 200", encoded(Image.new("RGB", (200, 1), "red")), Image.new("RGB", (SIDE, SIDE), "red")),
        _ranked("bytes after the end", encoded(base) + b"more", base),
        _ranked("PNG said to be JPEG", encoded(base), base, "image/jpeg"),
        Case("JPEG", data_uri(encoded(base, "JPEG"), "image/jpeg"), None),
        Case("CMYK JPEG", data_uri(encoded(base.convert("CMYK"), "JPEG"), "image/jpeg"), None),
        Case("progressive JPEG", data_uri(encoded(base, "JPEG", progressive=True), "image/jpeg"), None),
    ]
    return found


def _png_of(width: int, height: int) -> bytes:
    """The head of a PNG that says it is of this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _broken() -> list[Case]:
    """Images that cannot be used."""
    base = picture()
    png, jpeg, gif = encoded(base), encoded(base, "JPEG"), encoded(base.quantize(4), "GIF")
    noise = np.random.default_rng(0).bytes(2000)
    flipped = bytearray(png)
    flipped[len(png) // 2] ^= 0xFF
    bad = {
        "truncated PNG": png[: len(png) // 2],
        "truncated JPEG": jpeg[: len(jpeg) // 2],
        "truncated GIF": gif[: len(gif) // 2],
        "truncated WebP": encoded(base, "WEBP", lossless=True)[:-40],
        "head of a PNG only": png[:8],
        "a bit flipped in a PNG": bytes(flipped),
        "noise": noise,
        "noise after a JPEG's head": jpeg[:20] + noise,
        "one byte": b"\x89",
        "plain text": b"a red circle",
        "HTML": b"<html><body>Not found</body></html>",
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        "PDF": b"%PDF-1.7\n%%EOF",
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        "ZIP": b"PK\x03\x04" + noise,
        "pickle": b"\x80\x04\x95" + noise,
        "bomb by its header": _png_of(50_000, 50_000),
        "bomb under Pillow's own limit": _png_of(6000, 5000),
        "width 0": _png_of(0, 10),
        "huge sides": _png_of(2**31 - 1, 2**31 - 1),
        "aspect over 200": encoded(Image.new("RGB", (201, 1))),
        "aspect over 200, upright": encoded(Image.new("RGB", (1, 500))),
    }
    return [Case(name, data_uri(content)) for name, content in bad.items()]


def _encodings() -> list[Case]:
    """Good images in odd wrappings, and wrappings that hold none."""
    base = picture()
    plain = base64_of(encoded(base))
    bare = plain.rstrip("=")
    lines = "\r\n".join(plain[start : start + 76] for start in range(0, len(plain), 76))
    url_safe = plain.replace("+", "-").replace("/", "_")
    percent = "".join(f"%{byte:02X}" for byte in encoded(base))
    ok = {
        "base64 without padding": {"image": bare},
        "base64 with too much padding": {"image": plain + "=="},
        "base64 with spaces": {"image": f" {plain[:50]} {plain[50:]} "},
        "base64 in lines": {"image": lines},
        "URL-safe base64": {"image": url_safe},
        "data URI without padding": f"data:image/png;base64,{bare}",
        "data URI with a charset": f"data:image/png;charset=utf-8;base64,{plain}",
        "data URI with a name": f"data:image/png;name=a.png;base64,{plain}",
        "data URI in capitals": f"DATA:IMAGE/PNG;BASE64,{plain}",
        "data URI with spaces": f"  data:image/png; base64,{lines}\n",
        "data URI without a type": f"data:;base64,{plain}",
        "data URI of bytes": f"data:application/octet-stream;base64,{plain}",
        "data URI with escapes": "data:image/png;base64," + plain.replace("+", "%2B").replace("/", "%2F"),
        "data URI without base64": f"data:image/png,{percent}",
    }
    bad = {
        "base64 that is none": {"image": "not base64!"},
        "base64 cut to one letter": {"image": "Q"},
        "padding in the middle": {"image": f"{plain[:40]}=={plain[40:]}"},
        "letters outside ASCII": {"image": plain[:-4] + "äöü"},
        "an empty image": {"image": ""},
        "an empty data URI": "data:image/png;base64,",
        "a data URI without a comma": "data:image/png;base64",
        "a data URI of text": f"data:text/plain;base64,{plain}",
        "a data URI of a video": f"data:video/mp4;base64,{plain}",
        "half a surrogate": {"image": plain + "\ud800"},
    }
    found = [Case(name, document, None, base) for name, document in ok.items()]
    return found + [Case(name, document) for name, document in bad.items()]


def _shapes() -> list[Case]:
    """Documents that are not what a document is, or name a place that is closed."""
    shapes: dict[str, tuple[Any, str]] = {
        "null": (None, "invalid_documents"),
        "a number": (3, "invalid_documents"),
        "a boolean": (True, "invalid_documents"),
        "a list": (["data:image/png;base64,"], "invalid_documents"),
        "an empty object": ({}, "invalid_documents"),
        "an object with a null": ({"image": None}, "invalid_documents"),
        "an image that is an object": ({"image": {"url": "x"}}, "invalid_documents"),
        "a content that is a string": ({"content": "x"}, "invalid_documents"),
        "an empty content": ({"content": []}, "invalid_documents"),
        "a part without an address": ({"content": [{"type": "image_url"}]}, "invalid_documents"),
        "an address that is a number": ({"content": [{"type": "image_url", "image_url": 5}]}, "invalid_documents"),
        "two images": ({"content": [{"type": "image_url", "image_url": "x"}] * 2}, "invalid_documents"),
        "an empty string": ("", "text_document"),
        "white space": (" \n", "text_document"),
        "text": ("a red circle", "text_document"),
        "a path": ("/etc/passwd", "text_document"),
        "an http address": ("http://example.com/a.png", "forbidden_source"),
        "an https address": ({"image": "https://example.com/a.png"}, "forbidden_source"),
        "a file address": ("file:///etc/passwd", "forbidden_source"),
        "an ftp address": ("ftp://example.com/a.png", "text_document"),
        "an address of the loopback": ("http://127.0.0.1/a.png", "forbidden_source"),
    }
    return [Case(name, document, code) for name, (document, code) in shapes.items()]
