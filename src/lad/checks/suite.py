"""The checks, one function each, in the order in which they are run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from lad.checks.material import LONG, SHORT, Material, gap, picture, score_gap
from lad.checks.reference import attending
from lad.checks.result import CheckResult
from lad.errors import IdentifierError, LadError
from lad.identifiers import IDENTIFIER_SETS, log_softmax, make_identifiers
from lad.images import image_digest
from lad.model.features import EncodedImage
from lad.model.prompting import AttentionReduction, PromptBuilder
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING

Check = Callable[[Material], CheckResult]


def text_path(material: Material) -> CheckResult:
    """Our token ids are those of the processor's own call."""
    ours = material.prompt.tokens.tolist()
    theirs = material.plain["input_ids"][0].tolist()
    wrong = abs(len(ours) - len(theirs)) + sum(a != b for a, b in zip(ours, theirs, strict=False))
    return CheckResult("text_path", wrong, 0, f"{len(ours)} tokens, ours and the processor's; {wrong} differ")


def image_spans(material: Material) -> CheckResult:
    """Every image has one span of tokens; spans are disjoint, in the order asked for, and hold all its features."""
    vlm, count = material.vlm, len(material.encoded)
    token = vlm.model.config.image_token_id
    wrong, lengths = 0, []
    reductions: tuple[AttentionReduction, ...] = ("span", "features")
    for reduction in reductions:
        builder = PromptBuilder(vlm.model, vlm.processor, vlm.family, reduction)
        text = builder.render(MATCHING, material.identifiers, SHORT)
        prompt = builder.tokenize(text, material.encoded)
        places = [np.flatnonzero(prompt.segments.numpy() == index) for index in range(count)]
        ends = [(place[0], place[-1]) for place in places]
        wrong += sum(last >= first for (_, last), (first, _) in itertools.pairwise(ends))
        if reduction == "span":
            wrong += sum(last - first + 1 != len(place) for place, (first, last) in zip(places, ends, strict=True))
            lengths = [len(place) for place in places]
        elif vlm.family.images == "tokens":
            rows = [image.features.shape[0] for image in material.encoded]
            wrong += sum(len(place) != number for place, number in zip(places, rows, strict=True))
            wrong += int((prompt.tokens == token).sum()) != sum(rows)
    return CheckResult("image_spans", wrong, 0, f"tokens of each image: {', '.join(map(str, lengths))}")


def logits_unchanged(material: Material) -> CheckResult:
    """The probe changes nothing: logits with it are those of the stock implementation on the same inputs."""
    reference = material.reference
    with attending(material.vlm.model, reference.implementation):
        without, _ = material.run(material.prompt, material.encoded, probe=False)
    difference = gap(material.passed[0], without)
    return CheckResult("logits_unchanged", difference, 0, f"logits with the probe and with {reference.implementation}")


def attention_row(material: Material) -> CheckResult:
    """The probe's row is the last row of the model's eager attention, in every layer."""
    rows = material.passed[1].rows
    eager = material.reference.last_rows(material.plain)
    # a list of all layers, or of those that attend
    by_layer = (
        dict(enumerate(eager)) if len(eager) == material.vlm.depth else dict(zip(sorted(rows), eager, strict=True))
    )
    difference = max(gap(row[0], by_layer[layer]) for layer, row in rows.items())
    return CheckResult("attention_row", difference, material.tolerances.rows, f"{len(rows)} layers, probe and eager")


def rows_sum_to_one(material: Material) -> CheckResult:
    """Every layer that attends gives one row, and it sums to 1."""
    collector, vlm = material.passed[1], material.vlm
    attending = {
        module.layer_idx
        for module in vlm.model.get_decoder().modules()
        if getattr(module, "layer_idx", None) is not None and hasattr(module, "q_proj")
    }
    missing = len(attending ^ set(collector.rows)) if collector.layers is None else 0
    off = max(float((sums.sum(dim=1) - 1).abs().max()) for sums in collector.sums.values())
    detail = f"{len(collector.rows)} layers of {vlm.depth} give attention"
    return CheckResult("rows_sum_to_one", missing + off, material.tolerances.rows, detail)


def images_visible(material: Material) -> CheckResult:
    """Some layer sees all the images; which do is reported."""
    collector = material.passed[1]
    seeing = [layer for layer in sorted(collector.rows) if not collector.blind.get(layer, torch.zeros(1)).any()]
    detail = f"layers that see all three images: {_ranges(seeing) or 'none'}"
    return CheckResult("images_visible", float(not seeing), 0, detail)


def _ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` -> ``0-2, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def left_padding(material: Material) -> CheckResult:
    """Padding on the left changes neither logits nor rows."""
    logits, padded = material.run(material.prompt, material.encoded, padding=3)
    plain_logits, plain = material.passed
    rows = max(gap(padded.sums[layer], sums) for layer, sums in plain.sums.items())
    # in units of the rows' tolerance, so that one number speaks for both
    scale = material.tolerances.rows / material.tolerances.scores
    difference = max(rows, score_gap(logits, plain_logits) * scale)
    return CheckResult(
        "left_padding", difference, material.tolerances.rows, "logits and rows, with and without padding"
    )


def feature_reuse(material: Material) -> CheckResult:
    """Features encoded once give, in two orders, what the model's own pass over the pixels gives."""
    difference = score_gap(material.passed[0], material.reference.logits(material.plain))
    turned, images = material.pictures[::-1], material.encoded[::-1]
    plain = material.reference.logits(material.reference.inputs(LONG, turned, material.identifiers))
    ours, _ = material.run(material.tokenize(LONG, images), images)
    difference = max(difference, score_gap(ours, plain))
    return CheckResult("feature_reuse", difference, material.tolerances.scores, "two orders, features and pixels")


def features_follow_images(material: Material) -> CheckResult:
    """An image has the same features whichever images it is encoded with, and in whichever place."""
    vlm = material.vlm
    turned = _encode_afresh(vlm, material.pictures[::-1])[::-1]
    alone = [_encode_afresh(vlm, [image])[0] for image in material.pictures]
    size = max(float(image.features.abs().max()) for image in material.encoded)
    difference = max(
        gap(image.features, other.features) / size
        for others in (turned, alone)
        for image, other in zip(material.encoded, others, strict=True)
    )
    detail = "features in two orders and alone, relative to the largest"
    return CheckResult("features_follow_images", difference, material.tolerances.rows, detail)


def _encode_afresh(vlm: VisionLanguageModel, pictures: list[Image.Image]) -> list[EncodedImage]:
    """Features that come from no cache."""
    encoder = type(vlm.encoder)(vlm.model, vlm.processor, vlm.family, tiling=vlm.tiling)
    return encoder.encode(pictures, [image_digest(picture) for picture in pictures])


def cached_scores(material: Material) -> CheckResult:
    """Twelve images, "1" to "12": scores on one prefill and its cache are those of whole forward passes."""
    vlm = material.vlm
    identifiers = make_identifiers("digits", 12)
    pictures = [vlm.prepare(picture(seed)) for seed in range(12)]
    images = material.encode(pictures)
    ours, _ = vlm.observe([SHORT], [images], MATCHING, identifiers)
    answers = vlm.prompts.answers(vlm.prompts.render(MATCHING, identifiers, SHORT), identifiers)
    inputs = material.reference.inputs(SHORT, pictures, identifiers)
    logits = []
    for branch in answers.trie.branches:
        longer = material.reference.continued(inputs, answers.joined, branch.prefix)
        logits.append(material.reference.logits(longer)[list(branch.continuations)].double().cpu().numpy())
    theirs = log_softmax(answers.trie.log_probs(logits))
    likely = (ours[0] > -10) | (theirs > -10)
    difference = float(np.abs(ours[0] - theirs)[likely].max())
    steps = len(answers.trie.branches) - 1
    detail = f"12 images, {steps} further step{'s' if steps != 1 else ''} on the cache, and whole passes"
    return CheckResult("cached_scores", difference, material.tolerances.scores, detail)


def deterministic(material: Material) -> CheckResult:
    """The same question twice gives the same numbers."""
    first, second = (_observe(material, [(SHORT, (0, 1, 2))]) for _ in range(2))
    difference = max(float(np.abs(one - two).max()) for one, two in zip(first, second, strict=True))
    return CheckResult("deterministic", difference, 0, "the same question twice")


def batch_equals_single(material: Material) -> CheckResult:
    """Questions with captions of different lengths and exchanged images give together what each gives alone."""
    questions = [(SHORT, (0, 1, 2)), (LONG, (2, 0, 1)), (LONG, (1, 1, 0))]
    together = _observe(material, questions)
    difference = 0.0
    for index, question in enumerate(questions):
        scores, attention = _observe(material, [question])
        likely = scores[0] > -10
        difference = max(
            difference,
            float(np.abs(together[0][index] - scores[0])[likely].max()),
            float(np.abs(together[1][index] - attention[0]).max()),
        )
    return CheckResult(
        "batch_equals_single", difference, material.tolerances.scores, "three questions, together and alone"
    )


def _observe(material: Material, questions: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[Any, Any]:
    images = [[material.encoded[index] for index in order] for _, order in questions]
    return material.vlm.observe([caption for caption, _ in questions], images, MATCHING, material.identifiers)


def identifiers(material: Material) -> CheckResult:
    """The identifiers of every set, as many as there are up to twelve, have tokens of their own after the prompt."""
    prompts = material.vlm.prompts
    counts, broken = [], []
    for name in IDENTIFIER_SETS:
        names = make_identifiers(name, 12)
        try:
            answers = prompts.answers(prompts.render(MATCHING, names, SHORT), names)
        except IdentifierError as error:
            broken.append(f"{name}: {error}")
            continue
        steps = len([branch for branch in answers.trie.branches if branch.prefix])
        counts.append(f"{name} {steps}" + (" (joined to the prompt)" if answers.joined else ""))
    detail = "; ".join(broken) if broken else "further steps for 12 each: " + ", ".join(counts)
    return CheckResult("identifiers", len(broken), 0, detail)


CHECKS: tuple[Check, ...] = (
    text_path,
    image_spans,
    identifiers,
    logits_unchanged,
    attention_row,
    rows_sum_to_one,
    images_visible,
    left_padding,
    feature_reuse,
    features_follow_images,
    cached_scores,
    batch_equals_single,
    deterministic,
)
"""All checks; each takes the shared material and gives one result."""


def run_checks(vlm: VisionLanguageModel, *, progress: Callable[[int], None] | None = None) -> list[CheckResult]:
    """Run all checks on a model.

    A check that cannot be carried out has failed; its detail says why.

    Args:
        vlm: the model.
        progress: called with 1 after each check.

    Raises:
        ModelError: the model lacks something that observing needs, so that it cannot even be asked.
    """
    material = Material(vlm)
    _observe(material, [(SHORT, (0, 1, 2))])
    results = []
    for check in CHECKS:
        results.append(_carry_out(check, material))
        if progress is not None:
            progress(1)
    return results


def _carry_out(check: Check, material: Material) -> CheckResult:
    try:
        return check(material)
    except (LadError, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        # a model that nobody has tried yet may break in any way; the other checks still have something to say
        said = str(error).strip().splitlines() or [type(error).__name__]
        return CheckResult(check.__name__, math.inf, 0, f"could not be carried out: {said[0]}")
