"""Attention without the answer: a pass that ends at the deepest layer that the evidence needs.

The purified attention of a few layers is a decision of its own (Eq. 10-12). Where it is good enough, the layers above
them, the output layer and the steps of longer identifiers need not be run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.calibration import Calibration
from lad.decisions import DecisionOptions, decide, probabilities
from lad.errors import DecisionError
from lad.identifiers import make_identifiers
from lad.model.features import EncodedImage
from lad.model.observe import BATCH_TOKENS, candidates_of, run_passes
from lad.model.probe import Collector
from lad.model.scoring import collate, prefill, read_attention
from lad.model.vlm import PreparedSample, VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample


def needed_layers(
    depth: int,
    options: DecisionOptions = DecisionOptions(),  # noqa: B008 - frozen, so sharing it is safe
    calibration: Calibration | None = None,
) -> tuple[int, ...]:
    """The decoder layers that attention rules read with these options, ascending.

    ``layer_choice="calibrated"`` needs K of them, whatever the observation. The others choose among all layers of
    the ``layer_range``, so they save what lies above it: with the default range that is the output layer alone.

    Args:
        depth: layers of the decoder.
        options: of the rule.
        calibration: for ``layer_choice="calibrated"``.

    Raises:
        DecisionError: a range beyond the model's depth, or no calibration where one is needed.
    """
    candidates = np.array(options.candidate_layers(depth))
    if options.layer_choice != "calibrated":
        return tuple(candidates.tolist())
    if calibration is None:
        raise DecisionError("layer_choice='calibrated' needs a calibration.", hint="Make one with: lad calibrate")
    # layers without attention on the images were of no use in calibration and are not read
    seeing = candidates[(calibration.attention_prior[candidates] > 0).any(axis=1)]
    usable = seeing if len(seeing) else candidates
    best = usable[np.argsort(-calibration.layer_evidence[usable], kind="stable")]
    return tuple(sorted(best[: options.top_k].tolist()))


def observe_attention(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    orders: NDArray[np.integer],
    layers: Collection[int],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] | None = None,
    check: Callable[[PreparedSample], None] | None = None,
) -> Observations:
    """Observe the attention of some layers, and nothing above the deepest of them.

    Args:
        vlm: the model.
        samples: S samples of N candidates each.
        orders: (T, N) or (S, T, N).
        layers: decoder layers to read, usually :func:`needed_layers`.
        template: as in :func:`lad.model.observe.observe`, like all that follow.
        identifiers: the names of the positions.
        batch_tokens: upper limit of the tokens in one batch.
        progress: called with the number of observations just made.
        check: called with every sample once its images are read.

    Returns:
        S * T observations whose ``attention`` is that of a full observation in ``layers`` and zero elsewhere. The
        model was not asked for an answer: ``log_probs`` are uniform, so only attention rules can be applied.

    Raises:
        DecisionError: no layers, or one that the decoder does not have.
    """
    if not layers or min(layers) < 0 or max(layers) >= vlm.depth:
        raise DecisionError(f"The layers {sorted(layers)} are not among 0 to {vlm.depth - 1}.")
    names = make_identifiers(identifiers, candidates_of(samples))
    wanted = frozenset(layers)

    def forward(
        captions: Sequence[str], images: Sequence[Sequence[EncodedImage]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        attention = attention_pass(vlm, captions, images, wanted, template, names)
        return np.full((len(captions), len(names)), -np.log(len(names))), attention

    def length(caption: str, images: Sequence[EncodedImage]) -> int:
        return vlm.prompt_length(caption, images, template, names)

    return run_passes(vlm, samples, orders, forward, length, batch_tokens=batch_tokens, progress=progress, check=check)


def rank_by_attention(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    calibration: Calibration,
    options: DecisionOptions = DecisionOptions(layer_choice="calibrated"),  # noqa: B008 - frozen
    **observing: Any,
) -> NDArray[np.float64]:
    """Probabilities (S, N) of each sample's candidates by purified attention alone (pi of Eq. 12).

    Args:
        vlm: the model.
        samples: S samples, asked in the order of their images.
        calibration: fits the model and N.
        options: of the rule; those layers that it needs are read.
        observing: as of :func:`observe_attention`.
    """
    layers = needed_layers(vlm.depth, options, calibration)
    seen = observe_attention(vlm, samples, np.arange(candidates_of(samples))[None], layers, **observing)
    return probabilities(decide("purified_attention", seen, calibration, options))


def attention_pass(
    vlm: VisionLanguageModel,
    captions: Sequence[str],
    images: Sequence[Sequence[EncodedImage]],
    layers: Collection[int],
    template: PromptTemplate,
    identifiers: Sequence[str],
) -> NDArray[np.float64]:
    """One batch of :func:`observe_attention`: attention (B, L, N), zero outside ``layers``."""
    batch = collate(vlm.tokenize(captions, images, template, identifiers)[0], vlm.pad_token, vlm.device)
    collector = _EarlyCollector(vlm.encoder.collector(batch.segments, images), layers)
    with contextlib.suppress(_SeenEnough):
        prefill(vlm.model, batch, vlm.encoder.prefill_inputs(batch.inputs["input_ids"], images), collector)
    return read_attention(vlm.model, batch, collector)


class _SeenEnough(Exception):  # noqa: N818 - not an error: it ends a pass that has done its work
    """The deepest wanted layer has been received."""


class _EarlyCollector(Collector):
    """Ends the pass once the deepest of the wanted layers has been received."""

    def __init__(self, like: Collector, layers: Collection[int]) -> None:
        readable = layers if like.layers is None else set(layers) & set(like.layers)
        super().__init__(like.segments, like.count, frozenset(readable))
        self._deepest = max(readable, default=-1)

    def add(self, layer: int, row: torch.Tensor, visible: torch.Tensor | None = None) -> None:
        """See :meth:`Collector.add`."""
        super().add(layer, row, visible)
        if layer == self._deepest:
            raise _SeenEnough
