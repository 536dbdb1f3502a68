"""The published procedure in our own words, to measure against: what it does and how often, not how it is written.

Eager attention with all T x T maps, one run per method and order, images processed and encoded anew each time, a whole
forward pass for every two-token identifier's first token, `generate` for the plain answer, no batches. Where the choice
was ours it is in its favour: the vision tower keeps its fast attention, and a method that needs no attention maps does
not ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.model.scoring import forget_positions
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING
from lad.samples import Sample

METHODS = ("vanilla", "pride", "raw_attention", "purified_attention", "agd")
TOP_K, TEMPERATURE, FLOOR = 2, 5.0, 1e-20


class PublishedProcedure:
    """Answers samples as published, one method at a time.

    Args:
        vlm: lends its model, processor and image size; its text decoder must run with eager attention meanwhile.
        identifiers: digits, "1" to "N".
    """

    def __init__(self, vlm: VisionLanguageModel, identifiers: Sequence[str]) -> None:
        self._vlm = vlm
        self._identifiers = identifiers
        self._token = {name: vlm.processor.tokenizer(name)["input_ids"] for name in identifiers}
        self.forwards = 0
        """Whole forward passes so far."""

    def run(
        self, method: str, samples: Sequence[Sample], calibration: Sequence[Sample], orders: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Picks (S, T), candidates of each sample under each order; -1 where the text holds no valid number."""
        if method == "vanilla":
            said = [[self._generate(sample, order) for order in orders] for sample in samples]
            return np.array(said)
        bias, prior = self._calibrate(method, calibration)
        picks = np.empty((len(samples), len(orders)), dtype=np.int64)
        for row, sample in enumerate(samples):
            for column, order in enumerate(orders):
                scores, attention = self._observe(sample, order, method)
                picks[row, column] = order[_decide(method, scores, attention, bias, prior).argmax()]
        return picks

    def _calibrate(
        self, method: str, samples: Sequence[Sample]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        count = len(self._identifiers)
        by_answer: list[list[NDArray[np.float64]]] = [[] for _ in range(count)]
        maps = []
        for sample in samples:
            for shift in range(count):
                order = np.roll(np.arange(count), -shift)
                scores, attention = self._observe(sample, order, method)
                by_answer[int(np.flatnonzero(order == sample.answer)[0])].append(scores)
                maps.append(attention)
        profile = np.array([np.mean(rows, axis=0) for rows in by_answer])
        margins = np.diag(profile)[:, None] - profile
        gain = margins[~np.eye(count, dtype=bool)].max()
        bias = profile - (profile.mean() - gain / count + gain * np.eye(count))
        return bias, None if maps[0] is None else np.mean(maps, axis=0)

    def _observe(
        self, sample: Sample, order: NDArray[np.int64], method: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        wants_maps = method != "pride"
        inputs = self._inputs(sample, order)
        output = self._forward(inputs, wants_maps)
        attention = self._image_mass(inputs["input_ids"][0], output.attentions) if wants_maps else None
        return self._scores(inputs, output.logits[0, -1]), attention

    def _inputs(self, sample: Sample, order: NDArray[np.int64]) -> Any:
        images = [self._vlm.prepare(sample.images[candidate]) for candidate in order]
        text = self._vlm.prompts.render(MATCHING, self._identifiers, sample.caption)
        return self._vlm.processor(images=[images], text=[text], return_tensors="pt").to(self._vlm.device)

    def _forward(self, inputs: Any, maps: bool) -> Any:
        self.forwards += 1
        forget_positions(self._vlm.model)
        pixels = inputs["pixel_values"].to(self._vlm.model.dtype)
        with torch.no_grad():
            return self._vlm.model(**{**inputs, "pixel_values": pixels}, output_attentions=maps, use_cache=False)

    def _scores(self, inputs: Any, logits: torch.Tensor) -> NDArray[np.float64]:
        """Log-probabilities along the identifiers' tokens, restricted to valid continuations."""
        firsts = list(dict.fromkeys(tokens[0] for tokens in self._token.values()))
        first = dict(zip(firsts, logits[firsts].double().log_softmax(0).tolist(), strict=True))
        second: dict[tuple[int, int], float] = {}
        end = self._vlm.prompts.end_token()
        for token in firsts:
            longer = [tokens for tokens in self._token.values() if tokens[0] == token and len(tokens) > 1]
            if longer:
                further = [end, *(tokens[1] for tokens in longer)]
                grown = {**inputs, **_grown(inputs, token)}
                after = self._forward(grown, False).logits[0, -1]
                values = after[further].double().log_softmax(0).tolist()
                second.update(zip(((token, one) for one in further), values, strict=True))
        return np.array(
            [
                first[tokens[0]] + second.get((tokens[0], tokens[1] if len(tokens) > 1 else end), 0.0)
                for tokens in self._token.values()
            ]
        )

    def _image_mass(self, tokens: torch.Tensor, maps: Sequence[torch.Tensor]) -> NDArray[np.float64]:
        """(L, N) from whole maps: the last row's heads averaged, summed between each pair of markers."""
        config = self._vlm.model.config
        starts = torch.nonzero(tokens == config.vision_start_token_id)[:, 0].tolist()
        ends = torch.nonzero(tokens == config.vision_end_token_id)[:, 0].tolist()
        rows = torch.stack([layer[0, :, -1].float().mean(0) for layer in maps])
        mass = [rows[:, start : end + 1].sum(1) for start, end in zip(starts, ends, strict=True)]
        return torch.stack(mass, 1).double().cpu().numpy()

    def _generate(self, sample: Sample, order: NDArray[np.int64]) -> int:
        inputs = self._inputs(sample, order)
        self.forwards += 2
        forget_positions(self._vlm.model)
        with torch.no_grad():
            out = self._vlm.model.generate(
                **{**inputs, "pixel_values": inputs["pixel_values"].to(self._vlm.model.dtype)},
                max_new_tokens=2,
                do_sample=False,
            )
        text = self._vlm.processor.tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        numbers = [int(found) for found in re.findall(r"\d+", text) if 1 <= int(found) <= len(order)]
        return int(order[numbers[-1] - 1]) if numbers else -1


def _grown(inputs: Any, token: int) -> dict[str, torch.Tensor]:
    """The inputs with one more token of text."""
    added = {"input_ids": token, "attention_mask": 1, "mm_token_type_ids": 0}
    return {
        name: torch.cat([inputs[name], torch.full_like(inputs[name][:, :1], value)], dim=1)
        for name, value in added.items()
        if name in inputs
    }


def _decide(
    method: str,
    scores: NDArray[np.float64],
    attention: NDArray[np.float64] | None,
    bias: NDArray[np.float64],
    prior: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    if method == "pride":
        return scores - bias.mean(axis=0)
    assert attention is not None
    assert prior is not None
    layers = np.argsort(-attention.sum(axis=1), kind="stable")[:TOP_K]
    raw = attention[layers].mean(axis=0)
    if method == "raw_attention":
        return raw
    log_purified = np.log(np.maximum(raw, FLOOR)) - np.log(np.maximum(prior[layers], FLOOR)).mean(axis=0)
    if method == "purified_attention":
        return log_purified
    posterior = np.exp(TEMPERATURE * (log_purified - log_purified.max()))
    return scores - (posterior / posterior.sum()) @ bias
