"""Training of the small CLIP: it prepares pictures as the processor does, it learns, and saves what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import CLIPModel, CLIPProcessor, CLIPTokenizer

from lad.benchmarks.scenes import scene_samples
from training.batches import ScenePool
from training.clip import (
    build_model,
    build_processor,
    build_tokenizer,
    encode_images,
    encode_texts,
    measure,
    round_to_stored,
    save,
    train,
)

TOKENIZER = build_tokenizer(captions=500)


@pytest.fixture
def model() -> CLIPModel:
    return build_model(TOKENIZER)


@pytest.fixture(scope="module")
def processor() -> CLIPProcessor:
    return build_processor(TOKENIZER)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_no_text_is_unknown(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert ids[0] == TOKENIZER.bos_token_id
    assert ids[-1] == TOKENIZER.eos_token_id
    # the end token also stands for what is unknown
    assert not set(ids[1:-1]) & {TOKENIZER.unk_token_id, TOKENIZER.bos_token_id}
    assert isinstance(TOKENIZER, CLIPTokenizer)


def test_pixels_are_prepared_as_the_processor_does(model: CLIPModel, processor: CLIPProcessor) -> None:
    (sample,) = scene_samples(1, 5, split="train")
    prepared = processor.image_processor(list(sample.images), return_tensors="pt")
    expected = torch.nn.functional.normalize(model.get_image_features(**prepared).pooler_output, dim=-1)
    found = encode_images(model, processor, np.stack([np.asarray(image) for image in sample.images]))
    assert torch.allclose(found, expected, atol=1e-6)


def test_training_learns_and_what_is_saved_is_what_was_measured(
    model: CLIPModel, processor: CLIPProcessor, tmp_path: Path
) -> None:
    told: list[str] = []
    pool = ScenePool("train", families=12, seed=0)
    train(model, processor, pool, steps=40, families=4, members=4, report=told.append)
    # chance is log 16 = 2.77
    assert float(told[-1].split()[3]) < 2.6
    round_to_stored(model)
    save(model, processor, tmp_path)
    stored = CLIPModel.from_pretrained(tmp_path).float().eval()
    for name, value in model.state_dict().items():
        assert torch.equal(value, stored.state_dict()[name])
    again = CLIPProcessor.from_pretrained(tmp_path)
    texts = ["a small red circle", "a large blue square on a black background"]
    assert torch.equal(encode_texts(model, TOKENIZER, texts), encode_texts(stored, again.tokenizer, texts))
    assert measure(model, processor, 20) == measure(stored, again, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
