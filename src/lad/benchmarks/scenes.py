"""Synthetic scenes: coloured shapes with captions, endless, exact and free.

A scene is a specification. Its picture, its caption and its split all follow from it. The split is a hash of
the specification, so scenes used for training, calibration and testing are disjoint by what they show, not
merely by seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from PIL import Image, ImageDraw

from lad.errors import SampleError
from lad.samples import Sample

Setting = Literal["random", "adversarial"]
Split = Literal["train", "calibration", "test"]

SIDE = 56
"""Width and height of a picture, in pixels."""

COLORS = {
    "red": (214, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (245, 215, 30),
    "purple": (140, 50, 170),
    "orange": (255, 127, 15),
    "cyan": (30, 200, 220),
    "pink": (250, 140, 190),
}
BACKGROUNDS = {"white": (245, 245, 245), "grey": (128, 128, 128), "black": (16, 16, 16), "brown": (110, 70, 40)}
SHAPES = ("circle", "square", "triangle", "cross", "diamond")
SIZES = ("small", "large")
# number of objects -> layout -> centre of each object, in pixels
LAYOUTS: dict[int, dict[str, tuple[tuple[float, float], ...]]] = {
    1: {
        "top left": ((16, 16),),
        "top right": ((40, 16),),
        "bottom left": ((16, 40),),
        "bottom right": ((40, 40),),
        "center": ((28, 28),),
    },
    2: {
        "above": ((28, 14), (28, 42)),
        "below": ((28, 42), (28, 14)),
        "to the left of": ((14, 28), (42, 28)),
        "to the right of": ((42, 28), (14, 28)),
    },
    3: {
        "in a row from left to right": ((9.5, 28), (28, 28), (46.5, 28)),
        "in a column from top to bottom": ((28, 9.5), (28, 28), (28, 46.5)),
    },
}
_MIRRORED = {"below": "above", "to the right of": "to the left of"}
_RADIUS = {1: {"small": 6, "large": 12}, 2: {"small": 6, "large": 12}, 3: {"small": 5, "large": 9}}
_SUPERSAMPLING = 3
# tenths of the hash space
_SPLITS: tuple[Split, ...] = ("train",) * 5 + ("calibration",) * 2 + ("test",) * 3


@dataclass(frozen=True, order=True)
class SceneObject:
    """One shape."""

    size: str
    color: str
    shape: str

    def __str__(self) -> str:
        return f"a {self.size} {self.color} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """One to three different objects in a layout on a background."""

    objects: tuple[SceneObject, ...]
    layout: str
    background: str

    @cached_property
    def key(self) -> tuple[tuple[SceneObject, ...], str, str]:
        """Equal for two scenes that show the same ("A above B" is "B below A")."""
        if self.layout in _MIRRORED:
            return self.objects[::-1], _MIRRORED[self.layout], self.background
        return self.objects, self.layout, self.background

    @cached_property
    def split(self) -> Split:
        """The one split this scene belongs to: train 50%, calibration 20%, test 30% of all specifications."""
        return _SPLITS[_hash(self.key) % len(_SPLITS)]

    @property
    def caption(self) -> str:
        """One English phrase that is true of this scene and of no other."""
        ground = f"on a {self.background} background"
        if len(self.objects) == 1:
            place = "in the center" if self.layout == "center" else f"in the {self.layout} corner"
            return f"{self.objects[0]} {place} {ground}"
        if len(self.objects) == 2:
            return f"{self.objects[0]} {self.layout} {self.objects[1]} {ground}"
        return f"{self.objects[0]}, {self.objects[1]} and {self.objects[2]} {self.layout} {ground}"

    def neighbors(self) -> Iterator[Scene]:
        """Every other scene that differs from this one in exactly one attribute."""
        for index, thing in enumerate(self.objects):
            others = [replace(thing, size=size) for size in SIZES]
            others += [replace(thing, color=color) for color in COLORS]
            others += [replace(thing, shape=shape) for shape in SHAPES]
            for other in others:
                if other not in self.objects:
                    yield replace(self, objects=(*self.objects[:index], other, *self.objects[index + 1 :]))
        for layout in LAYOUTS[len(self.objects)]:
            if layout != self.layout:
                yield replace(self, layout=layout)
        for background in BACKGROUNDS:
            if background != self.background:
                yield replace(self, background=background)


def _hash(value: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:8], "big")


def draw_scene(rng: random.Random) -> Scene:
    """A scene drawn at random from all splits: one object 30%, two 50%, three 20%."""
    count = rng.choices((1, 2, 3), (0.3, 0.5, 0.2))[0]
    objects: list[SceneObject] = []
    while len(objects) < count:
        thing = SceneObject(rng.choice(SIZES), rng.choice(tuple(COLORS)), rng.choice(SHAPES))
        if thing not in objects:
            objects.append(thing)
    return Scene(tuple(objects), rng.choice(tuple(LAYOUTS[count])), rng.choice(tuple(BACKGROUNDS)))


def draw_candidates(rng: random.Random, count: int, setting: Setting, split: Split) -> list[Scene]:
    """``count`` different scenes of one split, the target first.

    Random: the others are drawn like the target. Adversarial: each differs from it in exactly one attribute.
    """
    while True:
        target = draw_scene(rng)
        if target.split != split:
            continue
        if setting == "random":
            chosen = {target.key: target}
            while len(chosen) < count:
                other = draw_scene(rng)
                if other.split == split:
                    chosen.setdefault(other.key, other)
            return list(chosen.values())
        near = {other.key: other for other in target.neighbors() if other.split == split}
        near.pop(target.key, None)
        if len(near) >= count - 1:
            return [target, *rng.sample(list(near.values()), count - 1)]


def render(scene: Scene, seed: int = 0) -> Image.Image:
    """Draw a scene, 56 x 56 RGB. Places, sizes and colours vary a little with ``seed``."""
    rng = random.Random(_hash((scene.key, seed)))
    big = SIDE * _SUPERSAMPLING
    image = Image.new("RGB", (big, big), BACKGROUNDS[scene.background])
    draw = ImageDraw.Draw(image)
    count = len(scene.objects)
    jitter = 1 if count == 3 else 2
    objects, layout, _ = scene.key
    for thing, (x, y) in zip(objects, LAYOUTS[count][layout], strict=True):
        color = tuple(max(0, min(255, round(part + rng.uniform(-12, 12)))) for part in COLORS[thing.color])
        radius = _RADIUS[count][thing.size] * rng.uniform(0.93, 1.05)
        place = x + rng.uniform(-jitter, jitter), y + rng.uniform(-jitter, jitter)
        _draw_shape(draw, thing.shape, color, place, radius)
    return image.resize((SIDE, SIDE), Image.Resampling.BOX)


def _draw_shape(
    draw: ImageDraw.ImageDraw, shape: str, color: tuple[int, ...], place: tuple[float, float], radius: float
) -> None:
    x, y, r = place[0] * _SUPERSAMPLING, place[1] * _SUPERSAMPLING, radius * _SUPERSAMPLING
    if shape == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=color)
    elif shape == "square":
        side = 0.88 * r
        draw.rectangle((x - side, y - side, x + side, y + side), fill=color)
    elif shape == "triangle":
        draw.polygon([(x, y - r), (x - r, y + 0.85 * r), (x + r, y + 0.85 * r)], fill=color)
    elif shape == "diamond":
        draw.polygon([(x, y - 1.1 * r), (x - 0.75 * r, y), (x, y + 1.1 * r), (x + 0.75 * r, y)], fill=color)
    else:
        arm = 0.34 * r
        draw.rectangle((x - arm, y - r, x + arm, y + r), fill=color)
        draw.rectangle((x - r, y - arm, x + r, y + arm), fill=color)


def scene_samples(
    count: int, candidates: int, *, setting: Setting = "random", split: Split = "test", seed: int = 0
) -> list[Sample]:
    """Labelled samples made of scenes. The same arguments give the same samples.

    Args:
        count: how many samples.
        candidates: N, 2 to 12; the place of the answer is uniform.
        setting: "random", or "adversarial" (every distractor differs from the target in one attribute).
        split: "train", "calibration" or "test"; no scene is in two of them.
        seed: seed of everything random.

    Raises:
        SampleError: ``candidates`` is outside 2..12.
    """
    if not 2 <= candidates <= 12:
        raise SampleError(f"Scenes come with 2 to 12 candidates, not {candidates}.")
    rng = random.Random(f"{setting} {split} {candidates} {seed}")
    samples = []
    for index in range(count):
        scenes = draw_candidates(rng, candidates, setting, split)
        answer = rng.randrange(candidates)
        ordered = [*scenes[1 : answer + 1], scenes[0], *scenes[answer + 1 :]]
        images = tuple(render(scene, rng.randrange(2**32)) for scene in ordered)
        name = f"scenes-{setting}-{split}-n{candidates}-s{seed}-{index:05d}"
        samples.append(Sample(caption=scenes[0].caption, images=images, answer=answer, id=name))
    return samples
