"""Answers in words against full forward passes, one token after the other; and images judged alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lad.benchmarks.scenes import scene_samples
from lad.errors import NumericsError
from lad.evaluation.prompts import load_prompts
from lad.identifiers import make_identifiers
from lad.model.answering import Sampling, answer, batches, yes_or_no
from lad.model.observe import observe
from lad.ranker import load

PROMPTS = load_prompts()


@pytest.fixture(scope="module")
def vlm():
    return load()


@pytest.fixture(scope="module")
def samples(vlm):
    chosen = sorted(scene_samples(12, 4, seed=7), key=lambda sample: len(sample.caption))
    return [vlm.prepare_sample(sample) for sample in (chosen[0], chosen[5], chosen[-1])]


def _answer(vlm, samples, template, limit, **options):
    images = [vlm.encode(sample) for sample in samples]
    captions = [sample.caption for sample in samples]
    return answer(vlm, captions, images, template, make_identifiers("digits", 4), max_new_tokens=limit, **options)


def _by_full_passes(vlm, sample, template, limit):
    """Greedy, the whole prompt anew for each token, through the processor and the model's own call."""
    content = [{"type": "image", "image": image} for image in sample.images]
    text = template.render(make_identifiers("digits", 4), sample.caption)
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    inputs = vlm.processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    written = []
    for _ in range(limit):
        vlm.model.model.rope_deltas = None
        with torch.inference_mode():
            token = int(vlm.model(**inputs).logits[0, -1].argmax())
        written.append(token)
        if token == vlm.prompts.end_token():
            break
        further = {"input_ids": token, "attention_mask": 1, "mm_token_type_ids": 0}
        for name, value in further.items():
            inputs[name] = torch.cat([inputs[name], torch.tensor([[value]])], dim=1)
    return written


@pytest.mark.parametrize("template", [PROMPTS.matching, PROMPTS.chain_of_thought], ids=["matching", "thought"])
def test_greedy_answers_are_those_of_full_passes(vlm, samples, template):
    found = _answer(vlm, samples, template, 12)
    for sample, answers in zip(samples, found, strict=True):
        wanted = _by_full_passes(vlm, sample, template, 12)
        text = vlm.processor.tokenizer.decode(wanted, skip_special_tokens=True).strip()
        assert [(one.text, one.tokens) for one in answers] == [(text, len(wanted))]


def test_two_tokens_of_vanilla_text_say_what_the_scores_say(vlm, samples):
    said = [answers[0].text for answers in _answer(vlm, samples, PROMPTS.matching, 2)]
    seen = observe(vlm, samples, np.arange(4)[None])
    assert said == [str(position + 1) for position in seen.log_probs.argmax(1)]


def test_an_answer_does_not_depend_on_its_batch(vlm, samples):
    together = _answer(vlm, samples * 3, PROMPTS.chain_of_thought, 8)
    alone = _answer(vlm, samples, PROMPTS.chain_of_thought, 8, batch_tokens=1)
    assert [[a.text for a in row] for row in together] == [[a.text for a in row] for row in alone] * 3


def test_sampled_answers(vlm, samples):
    options = {"sampling": Sampling(paths=6, temperature=1.0, seed=3)}
    first, again = (_answer(vlm, samples, PROMPTS.self_consistency, 6, **options) for _ in range(2))
    assert [len(row) for row in first] == [6, 6, 6]
    assert first == again
    other = _answer(vlm, samples, PROMPTS.self_consistency, 6, sampling=Sampling(6, 1.0, seed=4))
    assert other != first
    assert len({one.text for row in first for one in row}) > 3
    # so cold that only the likeliest token is left
    cold = _answer(vlm, samples, PROMPTS.matching, 4, sampling=Sampling(paths=3, temperature=1e-4))
    greedy = _answer(vlm, samples, PROMPTS.matching, 4)
    assert cold == [row * 3 for row in greedy]
    narrow = _answer(vlm, samples, PROMPTS.matching, 4, sampling=Sampling(paths=2, temperature=5.0, top_k=1))
    assert narrow == [row * 2 for row in greedy]


def test_frequencies_of_sampled_tokens(vlm, samples):
    sample = samples[0]
    drawn = _answer(vlm, [sample], PROMPTS.matching, 1, sampling=Sampling(paths=2000, temperature=2.0, top_k=3))[0]
    inputs_logits = {}
    forward = vlm.model.forward

    def spy(*args, **kwargs):
        output = forward(*args, **kwargs)
        inputs_logits["row"] = output.logits[0, -1]
        return output

    vlm.model.forward = spy
    try:
        _answer(vlm, [sample], PROMPTS.matching, 1)
    finally:
        vlm.model.forward = forward
    best, tokens = (inputs_logits["row"].double() / 2.0).topk(3)
    for token, share in zip(tokens.tolist(), best.softmax(0).tolist(), strict=True):
        text = vlm.processor.tokenizer.decode([token], skip_special_tokens=True).strip()
        assert np.mean([one.text == text for one in drawn]) == pytest.approx(share, abs=0.05)


def test_yes_or_no_is_the_log_odds_of_the_two_answers(vlm, samples):
    sample = samples[0]
    images = vlm.encode(sample)
    found = yes_or_no(vlm, [sample.caption] * 4, images, PROMPTS.pointwise, "yes", "no", batch_tokens=300)
    tokens = [vlm.processor.tokenizer(word).input_ids for word in ("yes", "no")]
    differing = next(k for k, (one, other) in enumerate(zip(*tokens, strict=False)) if one != other)
    assert differing == 0, "the words begin with different tokens, so the first step decides"
    for image, odds in zip(sample.images, found, strict=True):
        text = PROMPTS.pointwise.render(["1"], sample.caption)
        messages = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]
        inputs = vlm.processor.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        vlm.model.model.rope_deltas = None
        with torch.inference_mode():
            logits = vlm.model(**inputs).logits[0, -1]
        assert odds == pytest.approx(float(logits[tokens[0][0]] - logits[tokens[1][0]]), abs=1e-4)


def test_batches_hold_rows_of_similar_length():
    groups = batches(np.array([5, 1, 4, 2, 9]), 10)
    assert [group.tolist() for group in groups] == [[1, 3], [2, 0], [4]]


def test_logits_that_are_not_finite(vlm, samples):
    weight = vlm.model.lm_head.weight
    before = weight.data[0].clone()
    weight.data[0] = float("nan")
    try:
        with pytest.raises(NumericsError, match="not finite"):
            _answer(vlm, samples, PROMPTS.matching, 2)
    finally:
        weight.data[0] = before
