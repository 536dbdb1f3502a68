"""Training: its forward passes are the stock model's, and every stage runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from lad.benchmarks.scenes import scene_samples
from lad.identifiers import make_identifiers
from lad.prompts import MATCHING
from lad.samples import cyclic_orders
from training.batches import SPAN, PromptEncoder, ScenePool, position_weights
from training.checkpoint import build_model, build_processor, round_to_stored, save_checkpoint
from training.evaluate import observe
from training.forward import embed, encode_images, logits_at, record_last_rows, run_layers, to_patches, use_recorder
from training.losses import Heads, attention_loss
from training.questions import Mixture
from training.stages import Trainer, Weights, stage_contrast, stage_matching, stage_readout
from training.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def model(tokenizer):
    built = build_model(tokenizer, seed=3)
    use_recorder(built)
    return built


@pytest.fixture(scope="module")
def pool():
    return ScenePool("train", families=60, seed=5)


def _messages(images, identifiers, caption):
    content = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*content, {"type": "text", "text": MATCHING.render(identifiers, caption)}]}]


def _processed(tokenizer, sample, kind="digits"):
    messages = _messages(sample.images, make_identifiers(kind, len(sample)), sample.caption)
    return build_processor(tokenizer).apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )


def _array(sample):
    return np.stack([np.asarray(image) for image in sample.images])


def test_batched_vision_tower_equals_the_stock_one(tokenizer, model):
    sample = scene_samples(1, 5, split="train")[0]
    inputs = _processed(tokenizer, sample)
    with torch.no_grad():
        stock = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output
        ours = encode_images(model, to_patches(_array(sample)))
    assert torch.allclose(torch.stack(list(stock)), ours, atol=1e-5)
    assert ours.std() > 1e-3


@pytest.mark.parametrize(("count", "kind"), [(2, "digits"), (12, "digits"), (5, "words"), (9, "roman")])
def test_tokens_and_positions_are_those_of_processor_and_model(tokenizer, model, count, kind):
    sample = scene_samples(1, count, split="train")[0]
    inputs = _processed(tokenizer, sample, kind)
    batch = PromptEncoder(tokenizer).encode(make_identifiers(kind, count), [sample.caption])
    assert batch.ids.tolist() == inputs["input_ids"].tolist()
    positions, _ = model.model.get_rope_index(
        inputs["input_ids"],
        mm_token_type_ids=inputs["mm_token_type_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    assert batch.positions.tolist() == positions.tolist()


def test_padded_batch_gives_the_stock_logits_and_attention(tokenizer, model):
    samples = scene_samples(4, 3, split="train", seed=2)
    samples.sort(key=lambda sample: len(sample.caption))
    short, long = samples[0], samples[-1]
    batch = PromptEncoder(tokenizer).encode(make_identifiers("digits", 3), [short.caption, long.caption])
    assert batch.last[0] < batch.last[1]
    features = encode_images(model, to_patches(np.concatenate([_array(short), _array(long)])))
    with torch.no_grad(), record_last_rows(batch.last, range(6)) as rows:
        hidden = run_layers(model, embed(model, batch, features), batch.positions)
        logits = logits_at(model, hidden[torch.arange(2), batch.last])
    model.set_attn_implementation("eager")
    for index, sample in enumerate((short, long)):
        with torch.no_grad():
            stock = model(**_processed(tokenizer, sample), output_attentions=True)
        assert torch.allclose(stock.logits[0, -1], logits[index], atol=1e-4)
        length = int(batch.last[index]) + 1
        for layer, attention in enumerate(stock.attentions):
            assert torch.allclose(attention[0, :, -1].mean(0), rows[layer][index, :length], atol=1e-5)


def test_answers_stand_where_the_generation_prompt_ends(tokenizer):
    encoder = PromptEncoder(tokenizer)
    batch = encoder.encode(make_identifiers("digits", 12), ["a small red circle", "a pink cross"], answers=[11, 3])
    assert batch.targets.tolist() == [[*encoder.tokens("12"), encoder.end], [*encoder.tokens("4"), encoder.end, -100]]
    for row, last in enumerate(batch.last.tolist()):
        assert tokenizer.decode(batch.ids[row, : last + 1]).endswith("<|im_start|>assistant\n")
        spelled = [token for token in batch.targets[row].tolist() if token != -100]
        assert batch.ids[row, last + 1 : last + 1 + len(spelled)].tolist() == spelled


def test_pool_holds_only_its_split_and_sets_have_one_right_answer(pool):
    assert {scene.split for scene in pool.scenes} == {"train"}
    rng = np.random.default_rng(0)
    for adversarial in (False, True):
        sets, answers = pool.draw_sets(rng, 200, 8, adversarial)
        keys = [[pool.scenes[index].key for index in row] for row in sets]
        assert all(len(set(row)) == 8 for row in keys)
        assert set(answers.tolist()) == set(range(8))
    centers = [pool.scenes[row[answer]] for row, answer in zip(sets, answers, strict=True)]
    hubs = [
        sum(pool.scenes[index].key in {near.key for near in center.neighbors()} for index in row) == 7
        for center, row in zip(centers, sets, strict=True)
    ]
    assert 60 < sum(hubs) < 140


def test_position_weights_are_a_distribution_with_the_given_ratio():
    weights = position_weights(5, 1.2)
    assert weights.sum() == pytest.approx(1)
    assert math.log(weights[-1] / weights[0]) == pytest.approx(1.2)
    assert np.allclose(position_weights(5, 0), 0.2)


def test_scenes_take_four_tokens_each(tokenizer):
    processor = build_processor(tokenizer)
    sample = scene_samples(1, 2, split="train")[0]
    grid = processor.image_processor(list(sample.images), return_tensors="pt")["image_grid_thw"]
    assert grid.tolist() == [[1, 4, 4]] * 2


@pytest.fixture
def trainer(tokenizer, model, pool):
    return Trainer(model, PromptEncoder(tokenizer), Heads(), pool, report=lambda line: None)


_SMALL = Mixture(counts=((2, 1.0), (3, 1.0)), images=80)


def _changed(model, before):
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def _copy(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_contrast_stage_learns_below_the_matching_layers_only(trainer):
    before = _copy(trainer.model)
    stage_contrast(trainer, 3, families=6, members=2)
    changed = _changed(trainer.model, before)
    assert all(torch.isfinite(value).all() for value in trainer.model.parameters())
    layers = {int(name.split("layers.")[1].split(".")[0]) for name in changed if "language_model.layers." in name}
    assert layers == {0, 1, 2}
    assert any("visual" in name for name in changed)
    assert "lm_head.weight" not in changed


@pytest.mark.parametrize(
    ("weights", "learns_answers"), [(Weights(), False), (Weights(answer=1.5, attention=0.0), True)]
)
def test_matching_stage_learns_answers_only_where_asked(trainer, weights, learns_answers):
    before = _copy(trainer.model)
    told = []
    stage_matching(trainer, 3, weights, _SMALL, check=told.append)
    changed = _changed(trainer.model, before)
    assert told == [2]
    assert all(torch.isfinite(value).all() for value in trainer.model.parameters())
    assert ("lm_head.weight" in changed) == learns_answers
    assert any("layers.4.self_attn.q_proj" in name for name in changed)


def test_readout_stage_leaves_the_lower_layers_alone_and_stops_when_told(trainer):
    before = _copy(trainer.model)
    made = stage_readout(trainer, 10, _SMALL, stop=lambda step: step == 3)
    changed = _changed(trainer.model, before)
    assert made == 3
    assert all(torch.isfinite(value).all() for value in trainer.model.parameters())
    assert {int(name.split("layers.")[1].split(".")[0]) for name in changed if "layers." in name} == {3, 4, 5}
    assert "lm_head.weight" in changed
    assert not any("visual" in name or "embed_tokens" in name for name in changed)


def test_training_repeats_to_the_last_bit(tokenizer, pool):
    outcomes = []
    for _ in range(2):
        torch.manual_seed(0)
        built = build_model(tokenizer, seed=1)
        use_recorder(built)
        stage_matching(Trainer(built, PromptEncoder(tokenizer), Heads(), pool, lambda line: None), 2, Weights(), _SMALL)
        outcomes.append(built.state_dict())
    assert all(torch.equal(value, outcomes[1][name]) for name, value in outcomes[0].items())


def test_attention_loss_falls_with_the_share_of_the_right_image(tokenizer):
    batch = PromptEncoder(tokenizer).encode(make_identifiers("digits", 2), ["a small red circle"])
    row = torch.zeros(batch.ids.shape)
    row[0, batch.first_image + 1], row[0, batch.first_image + SPAN + 1] = 0.6, 0.2
    loss = attention_loss(batch, {3: row, 4: row}, torch.tensor([0]), mass_weight=0.1)
    assert float(loss) == pytest.approx(-math.log(0.75) - 0.1 * math.log(0.8), rel=1e-5)


def test_evaluation_scores_two_token_answers_and_every_order(tokenizer, model):
    samples = scene_samples(2, 11, split="train")
    orders = cyclic_orders(11)
    encoder = PromptEncoder(tokenizer)
    seen = observe(model, encoder, samples, orders)
    assert np.allclose(np.exp(seen.log_probs).sum(-1), 1)
    assert sorted(seen.answer_positions[:11].tolist()) == list(range(11))
    assert seen.samples == (samples[0].id,) * 11 + (samples[1].id,) * 11
    with torch.no_grad():
        batch = encoder.encode(make_identifiers("digits", 11), [samples[0].caption], suffix=encoder.tokens("1"))
        features = encode_images(model, to_patches(_array(samples[0])))
        hidden = run_layers(model, embed(model, batch, features), batch.positions)
        first, second = (logits_at(model, hidden[:, batch.last[0] + step])[0].double() for step in (0, 1))
    digits = [encoder.tokens(str(digit))[0] for digit in range(10)]
    one = first[digits[1:]].log_softmax(-1)[0]
    after = second[[encoder.end, digits[0], digits[1]]].log_softmax(-1)
    assert np.allclose(seen.log_probs[0, [0, 9, 10]], (one + after).numpy(), atol=1e-5)


def test_checkpoint_loads_as_any_other_and_holds_the_rounded_weights(tokenizer, model, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "MODEL_CARD.md").write_text("kept")
    round_to_stored(model)
    save_checkpoint(model, build_processor(tokenizer), folder)
    loaded = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(folder)
    assert type(loaded) is type(model)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    assert type(processor).__name__ == "Qwen2_5_VLProcessor"
    assert processor.video_processor is not None
    assert processor.chat_template == tokenizer.chat_template
    assert (folder / "MODEL_CARD.md").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"model"}
