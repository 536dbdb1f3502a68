"""From a caption and encoded images to token ids, position ids and image spans."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from jinja2 import TemplateError
from numpy.typing import NDArray
from PIL import Image

from lad.errors import IdentifierError, ModelError, PromptError
from lad.identifiers import TokenTrie
from lad.model.families import MARKER_FIELDS, Family
from lad.model.features import PROCESSOR_LOCK, EncodedImage, inner_model
from lad.model.tokenized import Answers, TokenizedPrompt, common_length
from lad.prompts import MATCHING, PromptTemplate

AttentionReduction = Literal["span", "features"]
"""Which tokens count as an image: its whole span with the marker tokens around it (as published), or the tokens
that carry its features."""

_TAIL = 32  # characters at the end of a prompt that decide how an answer is tokenised


class PromptBuilder:
    """Renders and tokenises prompts as the model's own chat template and processor do.

    Args:
        model: a transformers image-text-to-text model.
        processor: its processor, with a fast tokenizer and a chat template.
        family: its family's entry.
        reduction: which tokens count as an image.
        remember: how many tokenised prompts to keep; the orders of one sample share one.

    Raises:
        ModelError: no chat template, one for text or for one image only, or a tokenizer without offsets.
    """

    def __init__(
        self, model: Any, processor: Any, family: Family, reduction: AttentionReduction = "span", remember: int = 1024
    ) -> None:
        self._model = model
        self._processor = processor
        self._tokenizer = processor.tokenizer
        self._family = family
        self._reduction = reduction
        self._remember = remember
        self._prompts: OrderedDict[Any, TokenizedPrompt] = OrderedDict()
        self._answers: dict[Any, Answers] = {}
        own = getattr(processor, "chat_template", None) or getattr(self._tokenizer, "chat_template", None)
        self.template_kwargs = {} if own else {"chat_template": family.chat_template}
        if not (own or family.chat_template):
            raise ModelError(
                "The model's processor has no chat template.",
                hint="Use the instruction-tuned checkpoint, or save a chat_template.jinja with it.",
            )
        if not getattr(self._tokenizer, "is_fast", False):
            raise ModelError("The model's tokenizer gives no character offsets, which are needed to find the images.")
        self._markers = {
            token
            for config in (model.config, model.config.get_text_config())
            for name in MARKER_FIELDS
            if isinstance(token := getattr(config, name, None), int)
        }
        if not getattr(processor, "image_token", None) or not hasattr(processor, "get_text_with_replacements"):
            raise ModelError(
                f"{type(processor).__name__} does not say which text stands for an image and what takes its place.",
                hint="Use a model whose processor comes with transformers.",
            )
        self._forbidden = _control_texts(processor)
        # a model for one image per prompt is found out now, not after its weights have worked for a while
        self.render(MATCHING, ("1", "2"), "a picture")

    def render(self, template: PromptTemplate, identifiers: Sequence[str], caption: str) -> str:
        """The prompt as text, one placeholder per image, up to where the answer starts.

        Raises:
            PromptError: the caption is empty or holds text that the model reads as a control token.
        """
        question = template.render(identifiers, caption)
        for text in self._forbidden:
            if text in question:
                place = (
                    "caption"
                    if text in caption
                    else "list of identifiers"
                    if text in "".join(identifiers)
                    else "prompt"
                )
                raise PromptError(
                    f"The {place} contains {text!r}, which this model reads as a control token.",
                    hint=f"Take it out of the {place}.",
                )
        content = [{"type": "image"} for _ in identifiers]
        content.append({"type": "text", "text": question})
        text = self._chat([{"role": "user", "content": content}], add_generation_prompt=True)
        found = text.count(self._processor.image_token)
        if found != len(identifiers):
            several = "It must support several images in one turn."
            other = (
                f"It must write the processor's own placeholder, {self._processor.image_token!r}; see a newer revision."
            )
            raise ModelError(
                f"The chat template wrote {found} image placeholders for {len(identifiers)} images.",
                hint=several if found else other,
            )
        return text

    def _chat(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        try:
            return str(self._processor.apply_chat_template(messages, tokenize=False, **self.template_kwargs, **kwargs))
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelError(
                f"The chat template does not take images and text ({error}).",
                hint="Use the checkpoint's own template for images.",
            ) from error

    def _lay_out(self, text: str) -> str:
        """What the processor makes of a text before it puts images in (PaliGemma: a start token and a line end)."""
        holders = [Image.new("RGB", (1, 1))] * text.count(self._processor.image_token)
        laid_out = self._processor.prepare_inputs_layout(images=[holders] if holders else None, text=[text])[1]
        start = (self._tokenizer.bos_token or self._tokenizer.eos_token) if self._family.adds_start else ""
        return str(laid_out[0]) if laid_out[0].startswith(start) else f"{start}{laid_out[0]}"

    def _tokenize(self, text: str, **kwargs: Any) -> Any:
        # a template that writes the start token itself must not get a second one
        bos = self._tokenizer.bos_token
        wanted = getattr(self._processor, "text_kwargs", {}).get("add_special_tokens", True)
        with PROCESSOR_LOCK:
            return self._tokenizer(text, add_special_tokens=wanted and not (bos and text.startswith(bos)), **kwargs)

    def tokenize(self, text: str, images: Sequence[EncodedImage]) -> TokenizedPrompt:
        """Expand the placeholders of a rendered prompt for these images, and tokenise it.

        Prompts are remembered by text and by the images' sizes in tokens, not by their content.
        """
        grids = tuple(tuple(grid.flatten().tolist()) for image in images for grid in image.grid.values())
        key = (text, tuple(image.replacement for image in images), grids)
        if key in self._prompts:
            self._prompts.move_to_end(key)
            return self._prompts[key]
        prompt = self._build(text, images)
        self._prompts[key] = prompt
        if len(self._prompts) > self._remember:
            self._prompts.popitem(last=False)
        return prompt

    def _build(self, text: str, images: Sequence[EncodedImage]) -> TokenizedPrompt:
        laid_out = self._lay_out(text)
        expanded, replaced = self._processor.get_text_with_replacements([laid_out], [i.replacement for i in images])
        wanted = {"return_token_type_ids": True} if "token_type_ids" in self._processor.model_input_names else {}
        encoding = self._tokenize(expanded[0], return_offsets_mapping=True, **wanted)
        tokens = np.array(encoding["input_ids"])
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        if limit and len(tokens) > limit:
            raise PromptError(
                f"The prompt has {len(tokens)} tokens for {len(images)} images; the model takes {limit}.",
                hint="Use fewer images or a smaller image size.",
            )
        spans = [entry["new_span"] for entry in replaced[0] if entry["type"] == "image"]
        segments = self._segments(tokens, np.array(encoding["offset_mapping"]), spans)
        type_ids = self._type_ids(encoding)
        ids = torch.from_numpy(tokens)
        positions, next_position = self._positions(ids, type_ids, images)
        return TokenizedPrompt(ids, positions, next_position, torch.from_numpy(segments), type_ids, len(images))

    def _segments(
        self, tokens: NDArray[np.int64], offsets: NDArray[np.int64], spans: Sequence[tuple[int, int]]
    ) -> NDArray[np.int64]:
        features = tokens == self._model.config.image_token_id
        segments = np.full(len(tokens), len(spans))
        owned = np.zeros(len(tokens), dtype=int)
        real = offsets[:, 1] > offsets[:, 0]
        for index, (start, end) in enumerate(spans):
            inside = real & (offsets[:, 0] >= start) & (offsets[:, 1] <= end)
            owned += inside & features
            if self._reduction == "features":
                inside &= features
            elif inside.any():
                first, last = np.flatnonzero(inside)[[0, -1]]
                inside[first - 1 : first] |= first > 0 and tokens[first - 1] in self._markers
                inside[last + 1 : last + 2] |= last + 1 < len(tokens) and tokens[last + 1] in self._markers
            if not (inside & features).any():
                raise ModelError(f"Image {index} has no tokens in the prompt.")
            segments[inside] = index
        if (owned != features).any():
            raise ModelError("Some image tokens belong to no image or to two.", hint="Run `lad check` on this model.")
        return segments

    def _type_ids(self, encoding: Any) -> dict[str, torch.Tensor]:
        names = set(self._processor.model_input_names)
        result = {}
        if "token_type_ids" in names and "token_type_ids" in encoding:
            result["token_type_ids"] = torch.tensor(encoding["token_type_ids"])
        if getattr(self._processor, "return_mm_token_type_ids", False):
            kinds = torch.tensor(self._processor.create_mm_token_type_ids([encoding["input_ids"]])[0])
            result["mm_token_type_ids" if "mm_token_type_ids" in names else "token_type_ids"] = kinds
        return result

    def _positions(
        self, tokens: torch.Tensor, type_ids: dict[str, torch.Tensor], images: Sequence[EncodedImage]
    ) -> tuple[torch.Tensor, int]:
        rope: Callable[..., Any] | None = getattr(inner_model(self._model), "get_rope_index", None)
        if rope is None:
            first = self._family.first_position
            return torch.arange(first, first + len(tokens)), first + len(tokens)
        grids = {name: torch.cat([image.grid[name] for image in images]).cpu() for name in images[0].grid}
        batch = {name: ids[None] for name, ids in type_ids.items()}
        positions, delta = rope(input_ids=tokens[None], attention_mask=torch.ones_like(tokens)[None], **batch, **grids)
        return positions[:, 0], len(tokens) + int(delta.flatten()[0])

    def trie(self, text: str, identifiers: Sequence[str]) -> TokenTrie:
        """The trie of :meth:`answers`."""
        return self.answers(text, identifiers).trie

    def answers(self, text: str, identifiers: Sequence[str]) -> Answers:
        """The identifiers' tokens, tokenised where the answer stands in ``text``.

        Where the tokenizer joins an identifier with the end of the prompt (a space or a colon and a digit), the
        answer begins with the first token that differs: the prompt gives up its last tokens, and every identifier's
        tokens begin with what comes in their stead.

        Raises:
            IdentifierError: an identifier joins with all of the prompt, or two identifiers have the same tokens.
        """
        key = tuple(identifiers), text[-_TAIL:]
        if key not in self._answers:
            laid_out = self._lay_out(text)
            before = self._tokenize(laid_out)["input_ids"]
            after = [self._tokenize(laid_out + identifier)["input_ids"] for identifier in identifiers]
            kept = min(common_length(before, tokens) for tokens in after)
            if len(before) - kept > _TAIL // 2:
                raise IdentifierError("The tokenizer joins the identifiers with all of the prompt.")
            trie = TokenTrie([tokens[kept:] for tokens in after], self.end_token())
            self._answers[key] = Answers(trie, len(before) - kept)
        return self._answers[key]

    def end_token(self) -> int:
        """The token that ends the assistant's turn in the chat template; the tokenizer's own if that cannot be seen."""
        question = {"role": "user", "content": [{"type": "text", "text": "?"}]}
        opened = self._chat([question], add_generation_prompt=True) + "1"
        # some templates take the assistant's words as plain text only
        for content in ([{"type": "text", "text": "1"}], "1"):
            with suppress(ModelError):
                closed = self._chat([question, {"role": "assistant", "content": content}])
                before, after = (self._tokenize(text)["input_ids"] for text in (opened, closed))
                if after[: len(before)] == before and len(after) > len(before):
                    return int(after[len(before)])
        if self._tokenizer.eos_token_id is None:
            raise ModelError("The model has no token that ends an answer.")
        return int(self._tokenizer.eos_token_id)


def _control_texts(processor: Any) -> list[str]:
    """Every text that the tokenizer or the processor reads as something else than text."""
    tokenizer = processor.tokenizer
    texts = {str(token) for token in tokenizer.all_special_tokens}
    texts |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    texts |= set(getattr(processor, "all_special_multimodal_tokens", ()))
    return sorted(text for text in texts if text.strip())
