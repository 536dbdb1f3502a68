"""Any image source -> a clean RGB image, or an error that says which image and what to do about it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from lad.errors import ImageError
from lad.samples import ImageSource

# Everything else is refused: some of Pillow's other readers start outside programs.
_FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|data:", re.IGNORECASE)
_ORIENTATION_TAG = 0x0112
# EXIF 2.32, tag Orientation: value -> what brings the stored pixels upright (1 is upright)
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_16_BIT_MODES = ("I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class ImageLimits:
    """What an image may measure. Checked on what its header says, before any pixel is decoded.

    Attributes:
        max_pixels: most pixels, width times height. The default holds any camera's picture.
        max_aspect: longest side over shortest side; vision models refuse more than 200.
        min_side: shortest side, in pixels.
    """

    max_pixels: int = 150_000_000
    max_aspect: float = 200.0
    min_side: int = 1

    def check(self, width: int, height: int, where: str) -> None:
        """Refuse a width and height, in pixels, outside the limits.

        Raises:
            ImageError: naming ``where``, the size and the limit.
        """
        short, long = sorted((width, height))
        if short < max(1, self.min_side):
            raise ImageError(
                f"Measures {width} x {height} pixels; each side must have at least {max(1, self.min_side)}.",
                where=where,
            )
        if width * height > self.max_pixels:
            raise ImageError(
                f"Measures {width} x {height} pixels, more than the {self.max_pixels:,} allowed.",
                where=where,
                hint="Make it smaller first.",
            )
        if long > self.max_aspect * short:
            raise ImageError(
                f"Measures {width} x {height} pixels: one side is more than {self.max_aspect:g} times the other.",
                where=where,
                hint="Crop it first.",
            )


def load_image(source: ImageSource, *, where: str | None = None, limits: ImageLimits = ImageLimits()) -> Image.Image:
    """Read an image as people see it: upright, on white where it is transparent, 8-bit RGB.

    The source is left as it was. The result carries no metadata, so loading it once more changes nothing.

    Args:
        source: a path; a file's content as bytes; a Pillow image (its current frame); or an array (H, W) or
            (H, W, 1 | 3 | 4) of uint8 0..255, uint16 0..65535 or floats 0..1. Of an animation in a file, the first
            frame is taken. Pixels of 16 bits are scaled. Pillow's modes "I" and "F" do not say what white is:
            it is the smallest of 255 and 65535 ("I"), or of 1 and 255 ("F"), that no pixel exceeds.
        where: which image this is, for messages.
        limits: sizes to refuse.

    Raises:
        ImageError: the image is missing, broken, truncated, outside the limits, of an unknown format, or no image.
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_file(source, where, limits)
    if isinstance(source, bytes):
        return _load_bytes(source, where or "image given as bytes", limits)
    if isinstance(source, Image.Image):
        return _load_pillow(source, where or "image", limits)
    if isinstance(source, np.ndarray):
        return _load_array(source, where or "image given as an array", limits)
    raise ImageError(
        f"An object of type {type(source).__name__!r} is no image.",
        where=where,
        hint="Give a path, the bytes of a file, a Pillow image or a numpy array.",
    )


def image_digest(image: Image.Image) -> str:
    """SHA-256 of an image's mode, size and pixels, in hexadecimal; metadata does not count."""
    digest = hashlib.sha256(f"{image.mode} {image.width} {image.height}\n".encode())
    if palette := image.getpalette("RGBA") if image.mode in ("P", "PA") else None:
        digest.update(bytes(palette))
    digest.update(image.tobytes())
    return digest.hexdigest()


def is_address(text: str) -> bool:
    """Whether a text is an address ("https://...", "data:...") and not a path."""
    return _ADDRESS.match(text) is not None


def _load_file(path: str | os.PathLike[str], where: str | None, limits: ImageLimits) -> Image.Image:
    name = os.fspath(path)
    place = _shortened(name) if where is None else f"{where} ({_shortened(name)})"
    if is_address(name):
        raise ImageError(
            "Is an address; images are not fetched from anywhere.",
            where=place,
            hint="Download it, and give the path of the file or its bytes.",
        )
    file = Path(name)
    try:
        if file.is_dir():
            raise ImageError("Is a folder.", where=place, hint="Give the path of one image file.")
        if file.exists() and not file.is_file():
            raise ImageError("Is not a regular file.", where=place)
        handle = file.open("rb")
    except FileNotFoundError as error:
        raise ImageError("There is no such file.", where=place, hint="Check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise ImageError(f"Cannot be opened ({_reason(error)}).", where=place) from error
    with handle:
        return _decode(handle, place, limits)


def _load_bytes(content: bytes, where: str, limits: ImageLimits) -> Image.Image:
    with BytesIO(content) as handle:
        return _decode(handle, where, limits)


def _decode(handle: BinaryIO, where: str, limits: ImageLimits) -> Image.Image:
    if not handle.read(1):
        raise ImageError("Is empty.", where=where, hint="Save or download it again.")
    handle.seek(0)
    with _named_failures(where):
        opened = Image.open(handle, formats=_FORMATS)
    with opened:
        return _load_pillow(opened, where, limits)


def _load_pillow(image: Image.Image, where: str, limits: ImageLimits) -> Image.Image:
    limits.check(image.width, image.height, where)
    with _named_failures(where):
        image.load()
        orientation = image.getexif().get(_ORIENTATION_TAG)
        result = _to_rgb(image, where)
        if orientation in _UPRIGHT:
            result = result.transpose(_UPRIGHT[orientation])
        # The orientation has been dealt with: left in place, it would be dealt with again at the next loading.
        result.info = {}
        return result


def _load_array(array: NDArray[Any], where: str, limits: ImageLimits) -> Image.Image:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise ImageError(
            f"The array has the shape {array.shape}.",
            where=where,
            hint="Give (H, W) or (H, W, 1), (H, W, 3), (H, W, 4).",
        )
    limits.check(array.shape[1], array.shape[0], where)
    if array.dtype == np.uint8:
        levels = array
    elif array.dtype == np.uint16:
        levels = _to_8_bits(array, white=65535, where=where)
    elif np.issubdtype(array.dtype, np.floating):
        levels = _to_8_bits(array, white=1, where=where)
    else:
        raise ImageError(
            f"The array has the type {array.dtype}.", where=where, hint="Give uint8, uint16 or floats from 0 to 1."
        )
    if levels.ndim == 3 and levels.shape[2] == 1:
        levels = levels[:, :, 0]
    # a copy: Pillow may otherwise go on looking at the caller's memory
    return _to_rgb(Image.fromarray(np.array(levels, order="C")), where)


def _to_rgb(image: Image.Image, where: str) -> Image.Image:
    """A new RGB image, with transparent parts on white."""
    if image.mode in (*_16_BIT_MODES, "I", "F"):
        return _wide_to_rgb(image, where)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _wide_to_rgb(image: Image.Image, where: str) -> Image.Image:
    """Grey pixels of more than 8 bits, which Pillow's own conversion would clip."""
    values = np.asarray(image)
    if image.mode in _16_BIT_MODES:
        white = 65535
    else:
        choices = (1, 255) if image.mode == "F" else (255, 65535)
        white = next((choice for choice in choices if values.max() <= choice), choices[-1])
    grey = Image.fromarray(_to_8_bits(values, white=white, where=where))
    if (key := image.info.get("transparency")) is not None:  # a PNG's one transparent level
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
        return _to_rgb(grey, where)
    return grey.convert("RGB")


def _to_8_bits(values: NDArray[Any], *, white: int, where: str) -> NDArray[np.uint8]:
    """Scale levels so that ``white`` becomes 255."""
    if not np.isfinite(values).all():
        raise ImageError("Has pixels that are not finite (NaN or infinity).", where=where)
    low, high = values.min(), values.max()
    if low < 0 or high > white:
        raise ImageError(
            f"Has pixels from {low:g} to {high:g}, outside 0 to {white}.",
            where=where,
            hint="Scale them first, or give 8-bit levels.",
        )
    return np.asarray(np.rint(values * (255 / white)), dtype=np.uint8)


@contextlib.contextmanager
def _named_failures(where: str) -> Iterator[None]:
    """Turn whatever Pillow raises on a file into an :class:`ImageError`."""
    try:
        with warnings.catch_warnings():
            # ours is the limit that counts, and it has been or will be checked
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(
            "Is not an image of a known format.", where=where, hint=f"Known formats: {', '.join(_FORMATS)}."
        ) from error
    except Image.DecompressionBombError as error:
        raise ImageError("Has far too many pixels.", where=where, hint="Make it smaller first.") from error
    except Exception as error:  # Pillow's readers raise almost anything on a broken file
        raise ImageError(
            f"Is broken or truncated ({_reason(error)}).", where=where, hint="Save or download it again."
        ) from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _shortened(name: str, length: int = 200) -> str:
    """A path for a message; a whole picture in base64 is not."""
    return name if len(name) <= length else f"{name[:length]}..."
