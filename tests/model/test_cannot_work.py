"""Models that cannot work end with one message that names the requirement they miss, and exit code 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from lad.checks import run_checks
from lad.cli import main
from lad.errors import ModelError
from lad.model.loading import load_checkpoint
from lad.model.vlm import VisionLanguageModel
from tests.model.checkpoints.parts import byte_level, text_config
from tests.model.pictures import picture

Folder = Callable[[str], Path]


def _copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def no_image_support(checkpoint: Folder, folder: Path) -> Path:
    tokenizer = byte_level()
    AutoModelForCausalLM.from_config(LlamaConfig(**text_config(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def no_chat_template(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("qwen2_5_vl"), folder)
    (folder / "chat_template.jinja").unlink()
    return folder


def one_image_only(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("llava"), folder)
    template = (
        "{%- for message in messages %}USER: <image>\n"
        "{%- for part in message['content'] %}{%- if part['type'] == 'text' %}{{ part['text'] }}{%- endif %}"
        "{%- endfor %}{%- endfor %} ASSISTANT:"
    )
    (folder / "chat_template.jinja").write_text(template)
    return folder


def another_placeholder(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("internvl"), folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("<IMG_CONTEXT>", "<image>"))
    return folder


def a_template_that_refuses_several(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("llava"), folder)
    counted = "messages[0]['content'] | selectattr('type', 'equalto', 'image') | list | length"
    refusal = "{%- if " + counted + " > 1 %}{{ raise_exception('one image at a time') }}{%- endif %}"
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(refusal + template)
    return folder


def a_template_for_text_only(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("llava"), folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'].strip() }}{% endfor %}")
    return folder


def closed_attention(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("llava"), folder)
    (folder / "modeling_closed.py").write_text(
        "import torch\n"
        "from transformers import LlavaConfig, LlavaForConditionalGeneration\n"
        "from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv\n"
        "class ClosedConfig(LlavaConfig):\n"
        "    model_type = 'closed'\n"
        "def attend(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):\n"
        "    shape = (*hidden_states.shape[:-1], -1, self.head_dim)\n"
        "    parts = (self.q_proj, self.k_proj, self.v_proj)\n"
        "    q, k, v = (part(hidden_states).view(shape).transpose(1, 2) for part in parts)\n"
        "    q, k = apply_rotary_pos_emb(q, k, *position_embeddings)\n"
        "    k, v = (repeat_kv(part, self.num_key_value_groups) for part in (k, v))\n"
        "    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
        "    return self.o_proj(out.transpose(1, 2).flatten(2)), None\n"
        "class ClosedModel(LlavaForConditionalGeneration):\n"
        "    config_class = ClosedConfig\n"
        "    def __init__(self, config):\n"
        "        super().__init__(config)\n"
        "        for layer in self.model.language_model.layers:\n"
        "            layer.self_attn.forward = attend.__get__(layer.self_attn)\n"
    )
    # a class of its own has no table of old names for its weights
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("language_model.lm_head.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    auto = {"AutoConfig": "modeling_closed.ClosedConfig", "AutoModelForImageTextToText": "modeling_closed.ClosedModel"}
    config |= {"model_type": "closed", "architectures": ["ClosedModel"], "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def no_processor(checkpoint: Folder, folder: Path) -> Path:
    _copy(checkpoint("qwen2_5_vl"), folder)
    (folder / "processor_config.json").unlink()
    return folder


CASES = {
    no_image_support: "A 'llama' model has no image support",
    no_chat_template: "has no chat template",
    one_image_only: "wrote 1 image placeholders for 2 images. It must support several images in one turn",
    another_placeholder: "wrote 0 image placeholders for 2 images. It must write the processor's own placeholder",
    a_template_that_refuses_several: "The chat template does not take images and text (one image at a time)",
    a_template_for_text_only: "The chat template does not take images and text",
    closed_attention: "The attention of ClosedModel is closed",
    no_processor: "The model cannot be loaded",
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("verb", ["check", "calibrate"])
def test_one_message_names_what_is_missing(
    make: Callable[[Folder, Path], Path],
    verb: str,
    checkpoint: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make(checkpoint, tmp_path / "model")
    argv = ["lad", verb, str(folder), "--trust-remote-code"] if make is closed_attention else ["lad", verb, str(folder)]
    if verb == "calibrate":
        argv += ["--samples", str(_samples(tmp_path)), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", argv)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    message = [line for line in printed.err.splitlines() if line.startswith("lad: ")]
    assert len(message) == 1
    assert CASES[make] in message[0]
    assert "Traceback" not in printed.err
    assert not (tmp_path / "out").exists(), "nothing half-written"


def _samples(folder: Path) -> Path:
    lines = []
    for number in range(2):
        names = []
        for index in range(3):
            names.append(f"{number}-{index}.png")
            picture(3 * number + index).save(folder / names[-1])
        lines.append(json.dumps({"id": str(number), "caption": "a square", "images": names, "answer": 0}))
    file = folder / "samples.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


class _Lacking:
    """A processor without one of its abilities."""

    def __init__(self, processor: Any, lacks: str) -> None:
        self._processor = processor
        self._lacks = lacks

    def __getattr__(self, name: str) -> Any:
        if name == self._lacks:
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __call__(self, **kwargs: Any) -> Any:
        made = self._processor(**kwargs)
        made.pop(self._lacks, None)
        return made


@pytest.mark.parametrize("lacks", ["image_token", "get_text_with_replacements", "text_replacement_offsets"])
def test_a_processor_of_another_kind_is_refused(lacks: str, checkpoint: Folder) -> None:
    whole = load_checkpoint(checkpoint("llava"))
    with pytest.raises(ModelError, match="_Lacking does not say .* processor comes with transformers"):
        run_checks(VisionLanguageModel(replace(whole, processor=_Lacking(whole.processor, lacks))))


def test_a_tokenizer_without_offsets_is_refused(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_checkpoint(checkpoint("llava"))
    monkeypatch.setattr(type(whole.processor.tokenizer), "is_fast", False)
    with pytest.raises(ModelError, match="no character offsets"):
        VisionLanguageModel(whole)


def test_a_model_that_cannot_encode_images_alone_is_refused(checkpoint: Folder) -> None:
    whole = load_checkpoint(checkpoint("llava"))

    class Closed:
        config = whole.model.config
        model = whole.model.model

    with pytest.raises(ModelError, match="Closed has no get_image_features"):
        VisionLanguageModel(replace(whole, model=Closed()))
    shape = load_checkpoint(checkpoint("mllama"))
    Closed.config, Closed.model = shape.model.config, object()
    with pytest.raises(ModelError, match="Closed has no vision_model"):
        VisionLanguageModel(replace(shape, model=Closed()))


def test_a_processor_that_refuses_several_images_is_named(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    vlm = VisionLanguageModel(load_checkpoint(checkpoint("llava")))

    def refuse(**kwargs: Any) -> Any:
        raise ValueError("one image per prompt, please")

    monkeypatch.setattr(vlm.encoder, "_processor", _Calling(vlm.processor, refuse))
    with pytest.raises(ModelError, match=r"refuses these 3 images in one prompt: one image per prompt, please"):
        run_checks(vlm)


class _Calling(_Lacking):
    def __init__(self, processor: Any, call: Callable[..., Any]) -> None:
        super().__init__(processor, "")
        self._call = call

    def __call__(self, **kwargs: Any) -> Any:
        return self._call(**kwargs)
