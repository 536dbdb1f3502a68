"""MMIU: the tasks whose options name the images in order ("the first image", ...), as samples."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from lad.benchmarks.annotations import read_json, read_json_lines
from lad.benchmarks.groups import Groups
from lad.errors import SampleError
from lad.samples import ImageSource, Sample

Text = Literal["context+question", "question"]

TASKS = {
    "forensic_forgerynet": ("forensic", "forgerynet"),
    "forensic_blink": ("forensic", "blink"),
    "emotion_expw": ("emotion", "expw"),
    "emotion_findingemo": ("emotion", "findingemo"),
    "text2image_retrieval": ("text2image_retrieval",),
    "visual_quality": ("visual_quality",),
}
"""The six tasks of the paper -> what the dataset's own name of the task contains."""

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
_CARDINALS = "one two three four five six seven eight nine ten eleven twelve".split()
_NOUN = r"(?:images?|pictures?|photos?|photographs?)"
_ORDINAL = rf"(?:{'|'.join(_ORDINALS)}|\d+(?:st|nd|rd|th))"
_CARDINAL = rf"(?:\d+|{'|'.join(_CARDINALS)})"
# "the second image", "2nd picture" | "image 2", "picture two"
_PLACE = re.compile(rf"\b(?P<ordinal>{_ORDINAL})\s+{_NOUN}\b|\b{_NOUN}\s+#?(?P<cardinal>{_CARDINAL})\b", re.IGNORECASE)
# in the singular: "the following images" are all of them
_LAST = re.compile(
    r"\b(?:last|final|previous|next|left|right)(?:most)?\s+(?:image|picture|photo(?:graph)?)\b", re.IGNORECASE
)
_OPTION = re.compile(r"(?:^|(?<=\s))\(?(?P<letter>[A-Z])\s*[:.)]\s*")
_CHOICES = re.compile(r"select (?:one )?from the following (?:choices|options)", re.IGNORECASE)


def read_mmiu(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    tasks: Sequence[str] = tuple(TASKS),
    text: Text = "context+question",
) -> Groups:
    """Read tasks of MMIU.

    An item becomes a sample when each of its options names one of its images by its place, each image once; the
    sample's answer is the image that the right option names. Its text is the context without the list of choices,
    and the question. Items whose text names an image by its place cannot be asked in another order: they are counted
    and left out, as are items of other kinds.

    Args:
        annotations: the dataset's JSON or JSON lines: objects with task, question, context, options, output and
            input_image_path.
        images: the folder that ``input_image_path`` starts from.
        tasks: names of :data:`TASKS`, or the dataset's own.
        text: whether the context is part of a sample's text.

    Raises:
        SampleError: the file cannot be used, or has no item of a task.
    """
    file, folder = Path(annotations), Path(images)
    if not folder.is_dir():
        raise SampleError("Is not a folder of images.", where=str(images))
    samples: list[Sample] = []
    left_out: dict[str, int] = {}
    numbers = dict.fromkeys(tasks, 0)
    for place, record in _records(file):
        task = next((task for task in tasks if _belongs(str(record.get("task", "")), task)), None)
        if task is None:
            continue
        numbers[task] += 1
        found = _to_sample(record, folder, text, place, f"mmiu-{task}-{numbers[task] - 1:05d}")
        if isinstance(found, Sample):
            samples.append(found)
        else:
            left_out[found] = left_out.get(found, 0) + 1
    if empty := [task for task, number in numbers.items() if not number]:
        raise SampleError(f"Has no item of the task {empty[0]!r}.", where=str(file))
    return Groups("mmiu", tuple(samples), files=(file,), left_out=left_out, read={"tasks": list(tasks), "text": text})


def _records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if file.suffix.lower() == ".jsonl":
        yield from read_json_lines(file)
        return
    document = read_json(file)
    if not isinstance(document, list):
        raise SampleError("Must be a list of items.", where=str(file))
    for index, record in enumerate(document):
        if not isinstance(record, dict):
            raise SampleError(f"Must be an object, not {record!r:.40}.", where=f"{file}[{index}]")
        yield f"{file}[{index}]", record


def _belongs(name: str, task: str) -> bool:
    return name == task or (task in TASKS and all(part in name.lower() for part in TASKS[task]))


def _to_sample(record: dict[str, Any], folder: Path, text: Text, place: str, name: str) -> Sample | str:
    """A sample, or why the item is none."""
    paths = record.get("input_image_path")
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise SampleError("The key 'input_image_path' is missing or no list of texts.", where=place)
    options = candidates_of_options(str(record.get("options") or ""))
    if options is None or sorted(options.values()) != list(range(len(paths))) or len(paths) < 2:
        return "options do not name each image once"
    answer = _OPTION.match(f"{str(record.get('output') or '').strip()}:")
    if answer is None or answer["letter"] not in options:
        return "no right option"
    caption = question_text(str(record.get("context") or ""), str(record.get("question") or ""), text)
    if not caption:
        return "no question"
    if names_a_place(caption):
        return "names an image by its place"
    sources: list[ImageSource] = [folder / path for path in paths]
    if not all(Path(str(source)).is_file() for source in sources):
        return "file missing"
    return Sample(caption=caption, images=tuple(sources), answer=options[answer["letter"]], id=name)


def candidates_of_options(options: str) -> dict[str, int] | None:
    """Option letter -> candidate, counted from 0, of "A: the first image B: the second image"; None for others."""
    marks = list(_OPTION.finditer(options))
    if not marks:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(options)]
    found = {}
    for mark, end in zip(marks, ends, strict=True):
        named = _PLACE.search(options[mark.end() : end])
        words = options[mark.end() : end].strip(" .\n\t")
        if named is None or len(words) > len(named[0]) + len("the "):
            return None
        found[mark["letter"]] = _number(named) - 1
    return found if len(found) == len(marks) else None


def question_text(context: str, question: str, text: Text = "context+question") -> str:
    """The text of an item without its list of choices."""
    question = " ".join(question.split())
    if text == "question":
        return question
    cut = [found.start() for pattern in (_CHOICES, _OPTION) if (found := pattern.search(context))]
    context = " ".join(context[: min(cut, default=len(context))].split())
    return context if question in context else f"{context} {question}".strip()


def names_a_place(text: str) -> bool:
    """Whether a text refers to one of the images by where it stands ("the second image", "image 2")."""
    return bool(_PLACE.search(text) or _LAST.search(text))


def _number(named: re.Match[str]) -> int:
    word = (named["ordinal"] or named["cardinal"]).lower()
    for words in (_ORDINALS, _CARDINALS):
        if word in words:
            return words.index(word) + 1
    return int(re.sub(r"\D", "", word))
