from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageOps, PngImagePlugin

from lad.errors import ImageError
from lad.images import ImageLimits, image_digest, is_address, load_image

# four corners, all different, so that every one of the eight orientations shows
CORNERS = np.zeros((6, 4, 3), dtype=np.uint8)
CORNERS[:3, :2] = (250, 0, 0)
CORNERS[:3, 2:] = (0, 250, 0)
CORNERS[3:, :2] = (0, 0, 250)
CORNERS[3:, 2:] = (250, 250, 0)
# EXIF orientation -> how the upright picture must be turned to be stored so (the inverse of what a reader does)
STORED = {
    1: lambda image: image,
    2: ImageOps.mirror,
    3: lambda image: image.rotate(180),
    4: ImageOps.flip,
    5: lambda image: ImageOps.mirror(image.rotate(-90, expand=True)),
    6: lambda image: image.rotate(90, expand=True),
    7: lambda image: ImageOps.mirror(image.rotate(90, expand=True)),
    8: lambda image: image.rotate(-90, expand=True),
}


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image)


def noise(height: int = 64, width: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_every_kind_of_source_gives_the_same_picture(tmp_path: Path) -> None:
    image = Image.fromarray(CORNERS)
    path = tmp_path / "corners.png"
    image.save(path)
    for source in (path, str(path), path.read_bytes(), image, CORNERS, CORNERS / 255, CORNERS.astype(np.uint16) * 257):
        assert np.array_equal(pixels(load_image(source)), CORNERS)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_photographs_come_upright(orientation: int, kind: str) -> None:
    stored = STORED[orientation](Image.fromarray(CORNERS).resize((40, 60), Image.Resampling.NEAREST))
    exif = Image.Exif()
    exif[0x0112] = orientation
    loaded = load_image(encoded(stored, kind, exif=exif))
    assert loaded.size == (40, 60)
    # JPEG and WebP lose a little; the middle of each corner stays what it was
    middles = pixels(loaded)[15::30, 10::20].astype(int)
    assert np.abs(middles - CORNERS[1::3, 0::2].astype(int)).max() < 12


def test_an_upright_picture_is_not_turned_again() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    once = load_image(encoded(STORED[6](Image.fromarray(CORNERS)), exif=exif))
    assert np.array_equal(pixels(load_image(once)), CORNERS)
    assert np.array_equal(pixels(load_image(encoded(once))), CORNERS)


def test_an_opened_photograph_is_turned_and_left_as_it_was() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    opened = Image.open(BytesIO(encoded(STORED[8](Image.fromarray(CORNERS)), exif=exif)))
    for _ in range(2):
        assert np.array_equal(pixels(load_image(opened)), CORNERS)
        assert opened.size == (6, 4)
        assert opened.getexif()[0x0112] == 8


def test_the_result_is_the_callers_own() -> None:
    image = Image.fromarray(CORNERS)
    image.info["comment"] = "kept"
    array = CORNERS.copy()
    for source in (image, array):
        load_image(source).putpixel((0, 0), (1, 2, 3))
    assert np.array_equal(np.asarray(image), CORNERS)
    assert np.array_equal(array, CORNERS)
    assert image.info == {"comment": "kept"}


def test_transparent_parts_are_white() -> None:
    grey = Image.new("L", (2, 1), 10)
    alpha = Image.fromarray(np.array([[0, 255]], dtype=np.uint8))
    cases = {"LA": grey.copy(), "RGBA": grey.convert("RGB"), "PA": grey.convert("P")}
    for mode, image in cases.items():
        image.putalpha(alpha)
        assert image.mode == mode
        assert pixels(load_image(image)).tolist() == [[[255] * 3, [10] * 3]], mode


def test_half_transparent_pixels_are_mixed_with_white() -> None:
    image = Image.new("RGBA", (1, 1), (0, 100, 200, 128))
    expected = [round(level * 128 / 255 + 127) for level in (0, 100, 200)]
    assert np.abs(pixels(load_image(image))[0, 0].astype(int) - expected).max() <= 1
    as_array = np.asarray(image)
    assert np.array_equal(pixels(load_image(as_array)), pixels(load_image(image)))


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P"])
def test_a_transparent_color_is_white(mode: str) -> None:
    image = Image.fromarray(np.array([[0, 255], [255, 0]], dtype=np.uint8)).convert(mode)
    key = {"1": 0, "L": 0, "RGB": (0, 0, 0), "P": image.getpixel((0, 0))}[mode]
    loaded = load_image(encoded(image, transparency=key))
    assert (pixels(loaded) == 255).all()


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_a_transparent_animation_is_white_too(kind: str) -> None:
    frames = [Image.new("RGBA", (8, 8), (0, 0, 0, 0)), Image.new("RGBA", (8, 8), (255, 0, 0, 255))]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert (pixels(load_image(content)) == 255).all()


def test_the_first_frame_of_an_animation_is_taken() -> None:
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    frames = [Image.new("RGB", (8, 8), color) for color in colors]
    for kind in ("GIF", "PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert Image.open(BytesIO(content)).n_frames == 3, kind
        assert pixels(load_image(content))[0, 0].tolist() == [255, 0, 0], kind


def test_an_opened_animation_stays_at_its_frame() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ((255, 0, 0), (0, 255, 0))]
    opened = Image.open(BytesIO(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])))
    opened.seek(1)
    assert pixels(load_image(opened))[0, 0].tolist() == [0, 255, 0]
    assert opened.tell() == 1
    opened.seek(0)
    assert pixels(load_image(opened))[0, 0].tolist() == [255, 0, 0]


def test_cmyk_and_black_and_white() -> None:
    assert pixels(load_image(Image.new("CMYK", (1, 1), (0, 255, 255, 0)))).tolist() == [[[255, 0, 0]]]
    red = load_image(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95))
    assert np.abs(pixels(red)[0, 0].astype(int) - (255, 0, 0)).max() < 6
    assert pixels(load_image(Image.new("1", (2, 1), 1))).tolist() == [[[255] * 3] * 2]


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    levels = np.array([[0, 257, 128 * 257, 65535]], dtype=np.uint16)
    expected = [[[level] * 3 for level in (0, 1, 128, 255)]]
    image = Image.fromarray(levels)
    assert image.mode == "I;16"
    sources = [levels, levels[:, :, None], image, encoded(image), encoded(image, "TIFF")]
    sources.append(Image.fromarray(levels.astype(np.int32)))
    assert sources[-1].mode == "I"
    for source in sources:
        assert pixels(load_image(source)).tolist() == expected


def test_sixteen_bits_with_a_transparent_level() -> None:
    header = struct.pack(">IIBBBBB", 3, 1, 16, 0, 0, 0, 0)
    rows = b"\0" + struct.pack(">3H", 1000, 1001, 65535)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"tRNS", struct.pack(">H", 1000))
    content += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    assert pixels(load_image(content))[0, :, 0].tolist() == [255, 4, 255]


@pytest.mark.parametrize(
    ("mode", "levels", "expected"),
    [
        ("I", [0, 100, 255], [0, 100, 255]),
        ("I", [0, 257, 65535], [0, 1, 255]),
        ("F", [0.0, 0.5, 1.0], [0, 128, 255]),
        ("F", [0.0, 100.4, 255.0], [0, 100, 255]),
    ],
)
def test_modes_that_do_not_say_what_white_is(mode: str, levels: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([levels], dtype={"I": np.int32, "F": np.float32}[mode]))
    assert image.mode == mode
    assert pixels(load_image(image))[0, :, 1].tolist() == expected


@pytest.mark.parametrize("levels", [[-1, 5], [0, 70000]])
def test_levels_outside_every_range_are_refused(levels: list[int]) -> None:
    with pytest.raises(ImageError, match="outside 0 to"):
        load_image(Image.fromarray(np.array([levels], dtype=np.int32)))


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3]))))
def test_arrays_keep_their_levels(array: np.ndarray) -> None:
    expected = np.broadcast_to(array, (*array.shape[:2], 3))
    assert np.array_equal(pixels(load_image(array)), expected)
    assert np.array_equal(pixels(load_image((array / 255).astype(np.float32))), expected)
    assert np.array_equal(pixels(load_image(np.asfortranarray(array))), expected)
    if array.shape[2] == 1:
        assert np.array_equal(pixels(load_image(array[:, :, 0])), expected)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 4, 3), np.uint8), "4 x 0 pixels"),
        (np.zeros((4, 0), np.uint8), "0 x 4 pixels"),
        (np.zeros(5, np.uint8), r"shape \(5,\)"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \(3, 8, 8\)"),
        (np.zeros((4, 4, 2), np.uint8), r"shape \(4, 4, 2\)"),
        (np.zeros((1, 4, 4, 3), np.uint8), r"shape \(1, 4, 4, 3\)"),
        (np.zeros((4, 4), np.int64), "type int64"),
        (np.zeros((4, 4), bool), "type bool"),
        (np.array([["a"]]), "type <U1"),
        (np.full((4, 4), np.nan), "not finite"),
        (np.full((4, 4), np.inf), "not finite"),
        (np.full((4, 4, 3), 200.0), "from 200 to 200, outside 0 to 1"),
        (np.full((4, 4), -0.1), "outside 0 to 1"),
    ],
)
def test_arrays_that_are_no_images(array: np.ndarray, message: str) -> None:
    with pytest.raises(ImageError, match=message) as caught:
        load_image(array, where="sample 'x', image 2")
    assert caught.value.where == "sample 'x', image 2"


def test_objects_that_are_no_images() -> None:
    for thing in (None, 3, ["a.png"], object()):
        with pytest.raises(ImageError, match=f"type '{type(thing).__name__}' is no image"):
            load_image(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_truncated_files_are_refused_by_name(tmp_path: Path, kind: str, share: float) -> None:
    content = encoded(Image.fromarray(noise()), kind)
    path = tmp_path / f"cut.{kind.lower()}"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ImageError) as caught:
        load_image(path)
    assert caught.value.where == str(path)
    assert str(caught.value).startswith(f"{path}: Is ")
    assert caught.value.hint


def test_a_truncated_file_opened_elsewhere_is_refused() -> None:
    content = encoded(Image.fromarray(noise()), "JPEG")
    with pytest.raises(ImageError, match="sample 'a', image 1: Is broken or truncated"):
        load_image(Image.open(BytesIO(content[: len(content) // 2])), where="sample 'a', image 1")


@given(st.binary(min_size=1, max_size=60), st.integers(0, 400))
def test_damaged_bytes_give_an_image_or_an_image_error(junk: bytes, place: int) -> None:
    content = encoded(Image.fromarray(noise(8, 8)), "PNG")
    place %= len(content)
    with contextlib.suppress(ImageError):  # any other error fails the test
        assert load_image(content[:place] + junk + content[place + len(junk) :]).mode == "RGB"


def test_what_is_no_image_file(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("this is no picture")
    (tmp_path / "page.eps").write_bytes(encoded(Image.fromarray(noise()), "EPS"))
    os.mkfifo(tmp_path / "pipe")
    cases = {
        "": "Is a folder",
        "missing.png": "no such file",
        "empty.png": "Is empty",
        "text.jpg": "not an image of a known format",
        "page.eps": "not an image of a known format",
        "pipe": "not a regular file",
        "text.jpg/inside.png": "Cannot be opened",
        "x" * 5000: "Cannot be opened",
        "null\0.png": "Cannot be opened",
    }
    for name, message in cases.items():
        with pytest.raises(ImageError, match=message) as caught:
            load_image(os.fspath(tmp_path) + "/" + name)
        assert caught.value.where is not None
        assert caught.value.where.startswith(str(tmp_path))
        assert len(caught.value.where) < 300


def test_both_the_place_and_the_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        load_image(tmp_path / "gone.png", where="sample 'a', image 3")
    assert str(caught.value) == f"sample 'a', image 3 ({tmp_path / 'gone.png'}): There is no such file. Check the path."


def test_empty_bytes() -> None:
    with pytest.raises(ImageError, match="image given as bytes: Is empty"):
        load_image(b"")


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/a.png",
        "HTTP://example.org/a.png",
        "data:image/png;base64,iVBORw0KGgo=",
        "s3://bucket/a.png",
    ],
)
def test_addresses_are_not_fetched(address: str) -> None:
    assert is_address(address)
    with pytest.raises(ImageError, match="not fetched"):
        load_image(address)


def test_paths_are_no_addresses() -> None:
    for path in ("a.png", "/a/b.png", "C:\\a.png", "./data/a.png", "database/a.png", "a:b.png"):
        assert not is_address(path)


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("side", "message"), [(12_300, "12300 x 12300 pixels, more than the 150,000,000 allowed"), (50_000, "far too many")]
)
def test_bombs_are_refused_by_their_header(side: int, message: str) -> None:
    # it says it is this large, and has no pixels at all: to decode it would fail in another way
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match=message):
        load_image(content)


@pytest.mark.filterwarnings("error")
def test_a_large_picture_within_the_limits_gives_no_warning() -> None:
    content = encoded(Image.new("1", (10_000, 9_000)))
    assert load_image(content).size == (10_000, 9_000)
    with pytest.raises(ImageError, match="10000 x 9000 pixels, more than the 1,000 allowed"):
        load_image(content, limits=ImageLimits(max_pixels=1000))


def test_a_bomb_in_a_text_chunk_is_refused() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "x" * (80 * 2**20), zip=True)
    with pytest.raises(ImageError, match="broken or truncated"):
        load_image(encoded(Image.new("RGB", (2, 2)), pnginfo=info))


@pytest.mark.parametrize(("size", "fine"), [((200, 1), True), ((201, 1), False), ((1, 201), False), ((1, 1), True)])
def test_extreme_shapes(size: tuple[int, int], fine: bool) -> None:
    image = Image.new("RGB", size)
    for source in (image, encoded(image), np.asarray(image)):
        if fine:
            assert load_image(source).size == size
        else:
            with pytest.raises(ImageError, match=f"{size[0]} x {size[1]} pixels: one side is more than 200 times"):
                load_image(source)


def test_limits_of_ones_own() -> None:
    image = Image.new("RGB", (27, 30))
    with pytest.raises(ImageError, match="each side must have at least 28"):
        load_image(image, limits=ImageLimits(min_side=28))
    with pytest.raises(ImageError, match="more than 1.05 times"):
        load_image(image, limits=ImageLimits(max_aspect=1.05))
    assert load_image(image, limits=ImageLimits(max_pixels=810, max_aspect=1.2, min_side=27)).size == (27, 30)


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(ImageError, match="0 x 5 pixels"):
        load_image(Image.new("RGB", (0, 5)), limits=ImageLimits(min_side=0))


def test_the_digest_depends_on_what_is_seen() -> None:
    image = Image.fromarray(CORNERS)
    other = image.copy()
    other.info["comment"] = "not seen"
    assert image_digest(image) == image_digest(other)
    assert len(image_digest(image)) == 64
    changed = image.copy()
    changed.putpixel((3, 5), (250, 250, 1))
    flat, tall = Image.new("RGB", (2, 3)), Image.new("RGB", (3, 2))
    grey = Image.new("L", (2, 9))
    red, blue = Image.new("P", (2, 2), 1), Image.new("P", (2, 2), 1)
    red.putpalette([0, 0, 0, 255, 0, 0])
    blue.putpalette([0, 0, 0, 0, 0, 255])
    digests = [image_digest(each) for each in (image, changed, flat, tall, grey, red, blue)]
    assert len(set(digests)) == len(digests)


@pytest.mark.photos
def test_photographs_load(photographs: Path) -> None:
    listed = json.loads((photographs / "coco" / "captions.json").read_text())["images"][:40]
    for entry in listed:
        assert load_image(photographs / "coco" / "images" / entry["file_name"]).size == (
            entry["width"],
            entry["height"],
        )
