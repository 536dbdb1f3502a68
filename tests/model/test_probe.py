"""The row's arithmetic, and what a collector keeps of it."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from lad.model.probe import COLLECTOR_ARGUMENT, IMPLEMENTATION, Collector, last_row, register
from tests.model.checkpoints.parts import TEXT

BATCH, HEADS, GROUPS, LENGTH, SIZE = 2, 4, 2, 7, 8


def _tensors(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(BATCH, HEADS, LENGTH, SIZE, generator=generator)
    key = torch.randn(BATCH, GROUPS, LENGTH, SIZE, generator=generator)
    return query, key


def _whole(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, softcap: float | None = None
) -> torch.Tensor:
    scores = query @ key.repeat_interleave(HEADS // GROUPS, dim=1).transpose(2, 3) * 0.3
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)[:, :, -1].mean(dim=1)


def test_grouped_heads_share_their_keys() -> None:
    query, key = _tensors()
    assert torch.allclose(last_row(query, key, None, 0.3), _whole(query, key, None), atol=1e-6)


def test_a_boolean_mask_hides_keys() -> None:
    query, key = _tensors()
    mask = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    mask[1, :, :, :3] = False
    row = last_row(query, key, mask, 0.3)
    assert torch.allclose(row, _whole(query, key, mask), atol=1e-6)
    assert not row[1, :3].any()
    assert row.sum(dim=1) == pytest.approx(torch.ones(BATCH))


def test_an_additive_mask_is_added_and_may_differ_by_head() -> None:
    query, key = _tensors()
    mask = torch.ones(BATCH, HEADS, LENGTH, LENGTH, dtype=torch.bool).tril()
    mask[:, 1, :, 2] = False
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    assert torch.allclose(last_row(query, key, added, 0.3), _whole(query, key, mask), atol=1e-6)
    assert torch.allclose(last_row(query, key, mask, 0.3), _whole(query, key, mask), atol=1e-6)


def test_a_soft_cap_comes_before_the_mask() -> None:
    query, key = _tensors()
    mask = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    mask[..., 0] = False
    row = last_row(query * 9, key, mask, 0.3, softcap=2.0)
    assert torch.allclose(row, _whole(query * 9, key, mask, softcap=2.0), atol=1e-6)
    assert not torch.allclose(row, _whole(query * 9, key, mask), atol=1e-2)


def test_half_precision_rows_are_computed_in_float32() -> None:
    query, key = _tensors()
    query, key = query.bfloat16(), key.bfloat16()
    row = last_row(query, key, None, 0.3)
    assert row.dtype == torch.float32
    assert row.sum(dim=1) == pytest.approx(torch.ones(BATCH), abs=1e-6)


SEGMENTS = torch.tensor([[2, 0, 0, 1, 2], [2, 2, 0, 1, 1]])
ROW = torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25], [0.0, 0.1, 0.4, 0.2, 0.3]])


def test_rows_are_summed_by_segment_and_placed_by_layer() -> None:
    collector = Collector(SEGMENTS, 3)
    collector.add(2, ROW)
    out = collector.stacked(4)
    assert out.shape == (2, 4, 3)
    assert torch.allclose(out[:, 2], torch.tensor([[0.5, 0.15, 0.35], [0.4, 0.5, 0.1]]))
    assert not out[:, [0, 1, 3]].any()


def test_a_row_that_misses_a_token_of_an_image_counts_as_blind() -> None:
    collector = Collector(SEGMENTS, 3)
    visible = torch.ones(2, 5, dtype=torch.bool)
    visible[0, 0] = False  # of no image
    visible[1, 2] = False
    collector.add(0, ROW, visible)
    assert collector.blind[0].tolist() == [False, True]
    out = collector.stacked(1)
    assert out[0, 0].sum() == pytest.approx(1.0)
    assert not out[1].any()


def test_a_blind_row_is_zero_even_where_it_is_no_number() -> None:
    collector = Collector(SEGMENTS, 3)
    collector.add(0, torch.full((2, 5), float("nan")), torch.zeros(2, 5, dtype=torch.bool))
    collector.add(1, ROW)
    assert torch.isfinite(collector.stacked(2)).all()


def test_only_the_layers_asked_for_are_received() -> None:
    collector = Collector(SEGMENTS, 3, layers=frozenset({1}))
    assert [collector.wants(layer) for layer in range(3)] == [False, True, False]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"layer 5 attends over \(2, 4\), not \(2, 5\) keys"):
        Collector(SEGMENTS, 3).add(5, ROW[:, 1:])


def test_names_that_transformers_reads_otherwise_are_avoided() -> None:
    register()
    for meaning in ("sdpa", "flash", "/"):
        assert meaning not in IMPLEMENTATION
    for prefix in ("image_", "video_", "audio_"):
        assert not COLLECTOR_ARGUMENT.startswith(prefix)


@pytest.mark.parametrize("padding", [0, 3])
def test_a_decoder_with_a_soft_cap_runs_its_own_eager_code(padding: int) -> None:
    # without padding transformers hands over no mask, and eager code must be given one
    register()
    torch.manual_seed(0)
    shapes = {**TEXT, "vocab_size": 50, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0}
    model = AutoModelForCausalLM.from_config(
        Gemma2Config(**shapes, sliding_window=64), attn_implementation=IMPLEMENTATION
    )
    tokens = torch.arange(1, 21)[None]
    mask = torch.ones_like(tokens)
    mask[:, :padding] = 0
    inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(0)}
    collector = Collector(torch.zeros_like(tokens), 1)
    with torch.inference_mode():
        ours = model(**inputs, **{COLLECTOR_ARGUMENT: collector}).logits[:, -1]
        model.set_attn_implementation("eager")
        assert torch.allclose(ours, model(**inputs).logits[:, -1], atol=1e-5)
    assert sorted(collector.sums) == [0, 1, 2, 3]
