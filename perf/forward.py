"""One forward pass: plain, with everything that AGD needs, and with the published attention maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lad.decisions import decide
from lad.identifiers import TokenTrie, make_identifiers
from lad.model.evidence_only import attention_pass
from lad.model.features import EncodedImage
from lad.model.scoring import collate, prefill, score
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING
from perf.measure import model_bytes, peak_bytes, take_times
from perf.models import attention, noise_samples, random_calibration, random_vlm
from perf.setting import Row, Setting, at_most, exact

FORWARD, TWO_TOKENS, EVIDENCE = "one pass", "identifiers of two tokens", "evidence without the answer"


class Bench:
    """A batch over one model, and the ways to run it.

    Args:
        vlm: the model.
        candidates: N.
        rows: prompts in the batch.
    """

    def __init__(self, vlm: VisionLanguageModel, candidates: int, rows: int = 1) -> None:
        self.vlm = vlm
        self.names = make_identifiers("digits", candidates)
        samples = [vlm.prepare_sample(sample) for sample in noise_samples(vlm, rows, candidates)]
        # one caption: prompts of one length
        self.captions = [samples[0].caption] * rows
        self.images: list[list[EncodedImage]] = [vlm.encode(sample) for sample in samples]
        self.calibration = random_calibration(vlm, candidates)
        prompts, self.answers = vlm.tokenize(self.captions, self.images, MATCHING, self.names)
        self.batch = collate(prompts, vlm.pad_token, vlm.device)
        self.tokens = int(self.batch.inputs["input_ids"].shape[1])

    def _seen(self) -> dict[str, Any]:
        return self.vlm.encoder.prefill_inputs(self.batch.inputs["input_ids"], self.images)

    def plain(self) -> Any:
        """The answer's logits with transformers' own sdpa attention, and nothing else."""
        with attention(self.vlm, "sdpa"):
            return prefill(self.vlm.model, self.batch, self._seen()).logits

    def observed(self) -> Any:
        """The observation that every rule decides from."""
        return self.vlm.observe(self.captions, self.images, MATCHING, self.names)

    def agd(self) -> Any:
        """The observation and AGD's decision."""
        log_probs, seen = self.observed()
        count = len(self.names)
        orders = np.tile(np.arange(count), (len(log_probs), 1))
        observations = Observations(
            log_probs, seen, orders, np.full(len(log_probs), -1), tuple(str(row) for row in range(len(log_probs)))
        )
        return decide("agd", observations, self.calibration)

    def eager(self) -> Any:
        """The published way to the same attention: whole maps of every layer, then their last rows."""
        with attention(self.vlm, "eager"), torch.inference_mode():
            output = self.vlm.model(
                **self.batch.inputs, **self._seen(), use_cache=False, logits_to_keep=1, output_attentions=True
            )
            rows = torch.stack([layer[:, :, -1].float().mean(1) for layer in output.attentions], 1)
            sums = rows.new_zeros(*rows.shape[:2], len(self.names) + 1)
            where = self.batch.segments[:, None].expand_as(rows)
            return sums.scatter_add_(2, where, rows).cpu()

    def first_token(self) -> Any:
        """The same prompt, scored for the first tokens of its identifiers only."""
        branch = next(branch for branch in self.answers.trie.branches if not branch.prefix)
        trie = TokenTrie([[token] for token in branch.continuations], self.vlm.prompts.end_token())
        return score(self.vlm.model, self.vlm.encoder, self.batch, self.images, trie)

    def evidence(self, layers: Sequence[int]) -> Callable[[], Any]:
        """The attention of some layers alone."""
        return lambda: attention_pass(self.vlm, self.captions, self.images, layers, MATCHING, self.names)


def one_pass(setting: Setting) -> list[Row]:
    """AGD and the published maps against a plain pass, over prompt lengths."""
    rows = []
    for size in setting.lengths:
        vlm = random_vlm(setting.large, device=setting.device, dtype=setting.dtype, image_size=size)
        bench = Bench(vlm, 4)
        ways = {"plain": bench.plain, "agd": bench.agd, "eager": bench.eager}
        times = take_times(ways, setting.rounds, device=setting.device)
        peaks = {name: peak_bytes(call, setting.device) for name, call in ways.items()}
        weights = model_bytes(vlm.model)
        case = f"T = {bench.tokens}, N = 4"
        with_model = {name: peak + weights for name, peak in peaks.items()}
        rows += [
            at_most(FORWARD, case, "AGD / plain, time", times.ratio("agd", "plain"), 1.03, seconds=times.seconds),
            at_most(
                FORWARD, case, "AGD / plain, peak memory with the model",
                exact(with_model["agd"] / with_model["plain"]), 1.01, bytes=peaks, weights=weights,
            ),
            Row(FORWARD, case, "AGD / plain, peak memory without the model", exact(peaks["agd"] / peaks["plain"])),
            Row(FORWARD, case, "published maps / plain, time", times.ratio("eager", "plain")),
            Row(FORWARD, case, "published maps / plain, peak memory without the model",
                exact(peaks["eager"] / peaks["plain"])),
            Row(FORWARD, case, "plain, time", times.of("plain"), "s"),
        ]  # fmt: skip
    return rows


def two_tokens(setting: Setting) -> list[Row]:
    """Twelve digits, of which "10" to "12" take a second step."""
    size = (setting.side, setting.side)
    vlm = random_vlm(setting.large, device=setting.device, dtype=setting.dtype, image_size=size)
    bench = Bench(vlm, 12)
    ways = {"both": bench.observed, "first": bench.first_token}
    times = take_times(ways, setting.rounds, device=setting.device)
    weights = model_bytes(vlm.model)
    peaks = {name: peak_bytes(call, setting.device) for name, call in ways.items()}
    memory = exact((peaks["both"] + weights) / (peaks["first"] + weights))
    case, figure = f"T = {bench.tokens}, N = 12, digits", "all identifiers / first tokens only"
    return [
        at_most(TWO_TOKENS, case, f"{figure}, time", times.ratio("both", "first"), 1.15, seconds=times.seconds),
        at_most(TWO_TOKENS, case, f"{figure}, peak memory with the model", memory, 1.01, bytes=peaks, weights=weights),
    ]


def evidence(setting: Setting) -> list[Row]:
    """Stopping at a layer, against the whole pass."""
    shape = setting.large.with_layers(max(4, setting.large.layers), 1)
    size = setting.lengths[0]
    vlm = random_vlm(shape, device=setting.device, dtype=setting.dtype, image_size=size)
    bench = Bench(vlm, 4)
    rows = []
    for deepest in (vlm.depth // 2, vlm.depth - 1):
        ways = {"evidence": bench.evidence([deepest]), "full": bench.observed}
        times = take_times(ways, setting.rounds, device=setting.device)
        case = f"T = {bench.tokens}, layer {deepest} of 0 to {vlm.depth - 1}"
        rows.append(Row(EVIDENCE, case, "evidence / full observation, time", times.ratio("evidence", "full")))
    return rows
