"""The parser of text answers, on texts as models write them."""

from __future__ import annotations

import pytest

from lad.identifiers import make_identifiers
from lad.parsing import parse_answer

# (text, position or None); N = 4, identifiers "1".."4"
DIGITS = [
    ("3", 2),
    (" 3.", 2),
    ("**3**", 2),
    ("3\n", 2),
    ("(2)", 1),
    ("#4", 3),
    ("$\\boxed{2}$", 1),
    ("The answer is \\boxed{4}.", 3),
    ("Answer: 2", 1),
    ("The answer is 2.", 1),
    ("The answer is 2, because image 1 shows a dog and image 3 a cat.", 1),
    ("The correct answer is: **Image 4**", 3),
    ("image 3", 2),
    ("Image 3 shows a dog running on a beach.", 2),
    ("image_2", 1),
    ("Picture number 4", 3),
    ("The third", 2),
    ("the third image", 2),
    ("It is the second one.", 1),
    ("The caption matches the 4th picture.", 3),
    ("2nd", 1),
    ("Three", 2),
    ("Image three is the best match.", 2),
    ("I choose 1.", 0),
    ("I would go with image 2.", 1),
    ("The best match is image 4, not image 2.", 3),
    ("It is image 3 rather than image 1.", 2),
    ("2. It shows two dogs and 3 cats on a lawn.", 1),
    ("2, because there are 3 people in it", 1),
    ("1. A dog\n2. A cat\n3. A horse\nThe answer is 3.", 2),
    ("1. A dog\n2. A cat\n3. A horse\nSo it is the second picture.", 1),
    ("Image 1 shows a dog. Image 2 shows two cats. Image 4 fits the caption.", 3),
    ("There are 12 people in it, so the answer is 4.", 3),
    ("First, I look for a dog. It is in image 2.", 1),
    ("<think>Image 1 has a dog, image 2 has a cat.</think>2", 1),
    ("<think>It could be 1 or 2 or 4.</think>\n\nThe answer is **1**.", 0),
    ("<think>Images 1 to 3 do not fit, so it is image 4.</think>", 3),
    ("<think>Image 1 shows a dog and image 2", None),
    ("<think>a</think> 2 <think>wait, image 3", None),
    ("It is either 2 or 3.", 2),
    ("3 because it shows 2 dogs", 2),
    ("1-4: 3", 2),
    ("Candidate 3 fits; candidate 4 doesn't.", 2),
    ("Picture 2 does not show it. Picture 1 does.", 0),
    ("Image 2 and image 3 both show dogs, but only image 3 has a ball. So the answer is image 3.", 2),
    ('{"answer": 3}', 2),
    ("The caption says 'three men on 2 horses'. 4", 3),
    ("3\n\nExplanation: image 3 shows 2 dogs, image 4 none", 2),
    ("9", None),
    ("image 12", None),
    ("10", None),
    ("The answer is 7.", None),
    ("3.5", None),
    ("30% of it", None),
    ("None of the pictures match.", None),
    ("I cannot tell.", None),
    ("", None),
    ("!!!!", None),
    ("The two dogs are not visible in any of these.", None),
]


@pytest.mark.parametrize(("text", "position"), DIGITS)
def test_digits(text: str, position: int | None) -> None:
    assert parse_answer(text, make_identifiers("digits", 4)) == position


# (kind, N, text, position or None)
OTHERS = [
    ("digits", 12, "10", 9),
    ("digits", 12, "The answer is 12.", 11),
    ("digits", 12, "image 1 and image 11: 11", 10),
    ("digits", 12, "1", 0),
    ("digits", 12, "The eleventh picture", 10),
    ("uppercase", 4, "B", 1),
    ("uppercase", 4, "b", 1),
    ("uppercase", 4, "(C)", 2),
    ("uppercase", 4, "B. A red circle on a white wall", 1),
    ("uppercase", 4, "A red circle is in image D.", 3),
    ("uppercase", 4, "The answer is A.", 0),
    ("uppercase", 4, "A", 0),
    ("uppercase", 4, "A dog runs on a beach.", None),
    ("uppercase", 4, "Option C: the small dog", 2),
    ("uppercase", 4, "The third image", 2),
    ("uppercase", 4, "image 3", 2),
    ("uppercase", 4, "E", None),
    ("uppercase", 4, "I think that A is right", 0),
    ("uppercase", 4, "I choose B because A is blurry", 1),
    ("uppercase", 4, "Not A, but D", 3),
    ("lowercase", 4, "c", 2),
    ("lowercase", 4, "The answer is b.", 1),
    ("lowercase", 4, "it is a dog", None),
    ("lowercase", 4, "d) a dog", 3),
    ("lowercase", 4, "image a", 0),
    ("roman", 4, "III", 2),
    ("roman", 4, "IV.", 3),
    ("roman", 4, "I think it's III.", 2),
    ("roman", 4, "I", 0),
    ("roman", 4, "I don't know", None),
    ("roman", 4, "Picture II shows it", 1),
    ("roman", 4, "iii", 2),
    ("roman", 9, "The answer is VIII", 7),
    ("roman", 9, "X", None),
    ("words", 4, "third", 2),
    ("words", 4, "The Second.", 1),
    ("words", 4, "First, let me see. The answer is the fourth image.", 3),
    ("words", 4, "fifth", None),
    ("words", 4, "the 2nd", 1),
]


@pytest.mark.parametrize(("kind", "count", "text", "position"), OTHERS)
def test_other_identifiers(kind: str, count: int, text: str, position: int | None) -> None:
    assert parse_answer(text, make_identifiers(kind, count)) == position


def test_identifiers_of_ones_own() -> None:
    names = ("img-1", "img-10", "<x>", "red dog")
    texts = ["img-10", "The answer is <x>.", "I pick the red dog", "img-1", "img-100"]
    assert [parse_answer(text, names) for text in texts] == [1, 2, 3, 0, None]


def test_identifiers_that_differ_in_case_alone() -> None:
    assert [parse_answer(text, ("a", "A", "b")) for text in ("a", "A", "b", "B")] == [0, 1, 2, None]


MARKED = [
    ("Image 1 is a dog.\nFinal answer: 2", 1),
    ("final answer is **3**", 2),
    ("Final answer: 1. No, wait. Final answer: 4", 3),
    ("Image 3 it is.", 2),
    ("Final answer: none", None),
    ("<think>Final answer: 2</think> Final answer: 3", 2),
]


@pytest.mark.parametrize(("text", "position"), MARKED)
def test_marker(text: str, position: int | None) -> None:
    assert parse_answer(text, make_identifiers("digits", 4), marker="Final answer:") == position


def test_every_bare_identifier_is_read_as_itself() -> None:
    for kind, limit in (("digits", 40), ("uppercase", 26), ("lowercase", 26), ("roman", 40), ("words", 20)):
        names = make_identifiers(kind, limit)
        for position, name in enumerate(names):
            for text in (name, f"{name}.", f" {name}\n", f"**{name}**", f"({name})", f"The answer is {name}."):
                assert parse_answer(text, names) == position, (kind, text)
