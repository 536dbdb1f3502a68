"""The model as its own documentation runs it: the processor's call, pixels, one whole forward pass, no probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image

from lad.model.probe import IMPLEMENTATION
from lad.model.scoring import forget_positions
from lad.model.vlm import VisionLanguageModel
from lad.prompts import MATCHING


class Reference:
    """Plain forward passes of a model, to compare ours with.

    Args:
        vlm: the model; its attention implementation is changed during a pass and put back.
    """

    def __init__(self, vlm: VisionLanguageModel) -> None:
        self._vlm = vlm
        # sdpa knows no soft cap on attention scores, so such models run their own eager code
        capped = getattr(vlm.model.config.get_text_config(), "attn_logit_softcapping", None)
        self.implementation = "eager" if capped else "sdpa"

    def inputs(
        self, caption: str, images: Sequence[Image.Image], identifiers: Sequence[str]
    ) -> dict[str, torch.Tensor]:
        """What the processor makes of a conversation with these images, batch of one."""
        vlm = self._vlm
        content: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
        content.append({"type": "text", "text": MATCHING.render(identifiers, caption)})
        produced = vlm.processor.apply_chat_template(
            [{"role": "user", "content": content}],
            **vlm.prompts.template_kwargs,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs=dict(vlm.encoder.processor_kwargs),
        )
        return {
            name: value.to(vlm.device, vlm.model.dtype if value.is_floating_point() else value.dtype)
            for name, value in produced.items()
            if isinstance(value, torch.Tensor) and name != "labels"
        }

    def continued(
        self, inputs: dict[str, torch.Tensor], dropped: int, tokens: Sequence[int]
    ) -> dict[str, torch.Tensor]:
        """The same prompt without its last ``dropped`` tokens and with ``tokens`` after it."""
        length = inputs["input_ids"].shape[1]
        kept, added = length - dropped, len(tokens)
        result = dict(inputs)
        for name, value in inputs.items():
            if value.ndim < 2 or value.shape[:2] != (1, length):
                continue
            last = value[:, kept - 1 : kept].expand(-1, added, *value.shape[2:])
            if name == "input_ids":
                last = torch.tensor([list(tokens)], dtype=value.dtype, device=value.device)
            elif name.endswith("token_type_ids"):
                last = torch.full_like(last, self._vlm.family.answer_type)
            result[name] = torch.cat([value[:, :kept], last], dim=1)
        return result

    def logits(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Next-token logits (V,), in float32."""
        with attending(self._vlm.model, self.implementation), torch.inference_mode():
            forget_positions(self._vlm.model)
            logits: torch.Tensor = self._vlm.model(**inputs, use_cache=False, logits_to_keep=1).logits
        return logits[0, -1].float()

    def last_rows(self, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Last row of the eager attention, mean over heads, (T,) in float32; one per layer that attends."""
        with attending(self._vlm.model, "eager"), torch.inference_mode():
            forget_positions(self._vlm.model)
            output = self._vlm.model(**inputs, use_cache=False, logits_to_keep=1, output_attentions=True)
        return [layer[0, :, -1].float().mean(dim=0) for layer in output.attentions if layer is not None]


@contextmanager
def attending(model: Any, implementation: str) -> Iterator[None]:
    """Run the text decoder with another attention implementation, then with the probe again."""
    model.set_attn_implementation({"text_config": implementation})
    try:
        yield
    finally:
        model.set_attn_implementation({"text_config": IMPLEMENTATION})
