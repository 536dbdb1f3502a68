"""Many captions over the same images: the images are read once, each caption costs its own tokens only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lad.errors import ModelError, SampleError
from lad.identifiers import TokenTrie, make_identifiers
from lad.model.caches import cache_bytes, fork
from lad.model.features import EncodedImage
from lad.model.memory import Budget
from lad.model.observe import equal_lengths
from lad.model.probe import COLLECTOR_ARGUMENT, Collector
from lad.model.scoring import collate, forget_positions, prefill, read_out
from lad.model.tokenized import TokenizedPrompt
from lad.model.vlm import VisionLanguageModel
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate

GALLERY_TOKENS = 32768
"""Keys and values held for a batch of captions, in tokens: each caption's continuation has its own."""


class Gallery:
    """N images in one order, whose keys and values are kept for any number of captions.

    Images come before the text of a prompt, so what a decoder makes of them does not depend on the caption.
    Observations are the same as those of :func:`lad.model.observe.observe` up to rounding.

    Args:
        vlm: the model.
        images: N encoded images in the order of their positions.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.

    Raises:
        ModelError: the family's images attend to the caption; or memory runs out.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        images: Sequence[EncodedImage],
        *,
        template: PromptTemplate = MATCHING,
        identifiers: str | Sequence[str] = "digits",
    ) -> None:
        if vlm.family.images_see_text:
            raise ModelError(
                f"The images of {type(vlm.model).__name__} attend to the caption, so they cannot be read ahead of it.",
                hint="Observe each caption on its own instead.",
            )
        self.vlm = vlm
        self.images = list(images)
        self.template = template
        self.identifiers = make_identifiers(identifiers, len(self.images))
        text = vlm.prompts.render(template, self.identifiers, "a picture")
        whole = vlm.prompts.tokenize(text, self.images)
        # everything up to the last token of the last image
        self.length = int(torch.nonzero(whole.segments < whole.images).max()) + 1
        self._start = whole.without_last(len(whole.tokens) - self.length)
        [(_, self._cache)] = Budget(1).run([self._start], 1, self._read)

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.images)

    @property
    def nbytes(self) -> int:
        """Memory that the kept keys and values take; captions add nothing to it."""
        return cache_bytes(self._cache)

    def _read(self, prompts: Sequence[TokenizedPrompt]) -> Any:
        batch = collate(prompts, self.vlm.pad_token, self.vlm.device)
        self._seen = self.vlm.encoder.prefill_inputs(batch.inputs["input_ids"], [self.images])
        return prefill(self.vlm.model, batch, self._seen, use_cache=True).cache

    def observe(
        self,
        captions: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        batch_tokens: int = GALLERY_TOKENS,
        progress: Callable[[int], None] | None = None,
    ) -> Observations:
        """Observe captions over the gallery's images, in the gallery's order.

        Args:
            captions: M captions.
            ids: what to call them; None for their numbers.
            batch_tokens: upper limit of the tokens, images included, whose keys and values are held at a time.
            progress: called with the number of observations just made.

        Returns:
            M observations, without answers.

        Raises:
            SampleError: no captions.
            PromptError: a caption that the model cannot take.
            ModelError: memory runs out with a single caption.
        """
        if not captions:
            raise SampleError("There are no captions to observe.")
        images = [self.images] * len(captions)
        prompts, answers = self.vlm.tokenize(captions, images, self.template, self.identifiers)
        for index, prompt in enumerate(prompts):
            if not torch.equal(prompt.tokens[: self.length], self._start.tokens):
                raise ModelError("Changes how the images before it are tokenised.", where=f"caption {index}")

        def run(rows: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return self._continue([prompts[row] for row in rows], answers.trie)

        log_probs = np.empty((len(prompts), len(self)))
        attention = np.empty((len(prompts), self.vlm.depth, len(self)))
        budget = Budget(batch_tokens)
        for length, rows in equal_lengths({row: len(prompt.tokens) for row, prompt in enumerate(prompts)}):
            for some, seen in budget.run(rows, length, run):
                log_probs[some], attention[some] = seen
                if progress is not None:
                    progress(len(some))
        return Observations(
            log_probs=log_probs,
            attention=attention,
            orders=np.tile(np.arange(len(self)), (len(prompts), 1)),
            answers=np.full(len(prompts), -1),
            samples=tuple(str(index) for index in range(len(prompts))) if ids is None else tuple(ids),
        )

    def _continue(
        self, prompts: Sequence[TokenizedPrompt], trie: TokenTrie
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run prompts of one length from where the images end."""
        vlm, rows = self.vlm, len(prompts)
        batch = collate(prompts, vlm.pad_token, vlm.device)
        collector = _PaddedCollector(vlm.encoder.collector(batch.segments, [self.images] * rows))

        def further(steps: int) -> dict[str, Any]:
            inputs = vlm.encoder.step_inputs(self._seen, steps)
            return {name: value.expand(rows, *value.shape[1:]) for name, value in inputs.items()}

        forget_positions(vlm.model)
        with torch.inference_mode():
            output = vlm.model(
                input_ids=batch.inputs["input_ids"][:, self.length :],
                attention_mask=batch.inputs["attention_mask"],
                position_ids=batch.inputs["position_ids"][..., self.length :],
                cache=fork(self._cache, rows),
                use_cache=True,
                logits_to_keep=1,
                **further(len(prompts[0].tokens) - self.length),
                **{COLLECTOR_ARGUMENT: collector},
            )
        return read_out(vlm.model, batch, trie, output, collector, further)


class _PaddedCollector(Collector):
    """Also takes rows of layers whose window has let go of the first keys: those are hidden."""

    def __init__(self, like: Collector) -> None:
        super().__init__(like.segments, like.count, like.layers)

    def add(self, layer: int, row: torch.Tensor, visible: torch.Tensor | None = None) -> None:
        """See :meth:`Collector.add`; ``row`` may be of the last keys only."""
        gone = self.segments.shape[1] - row.shape[1]
        if gone > 0:
            if visible is None:
                visible = torch.ones_like(row, dtype=torch.bool)
            row = torch.nn.functional.pad(row, (gone, 0))
            visible = torch.nn.functional.pad(visible, (gone, 0))
        super().add(layer, row, visible)
