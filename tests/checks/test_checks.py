"""The checks find what they are for: each is shown a model that is wrong in its way."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AttentionMaskInterface
from typer.testing import CliRunner

from lad.checks import CHECKS, CheckResult, Tolerances, run_checks
from lad.checks.suite import _ranges
from lad.cli import app
from lad.errors import IdentifierError, NumericsError
from lad.model import probe, scoring
from lad.model.features import ImageEncoder
from lad.model.probe import IMPLEMENTATION, Collector
from lad.model.prompting import PromptBuilder
from lad.model.vlm import VisionLanguageModel

Patch = pytest.MonkeyPatch


def forget_the_mask(patch: Patch) -> None:
    patch.delitem(AttentionMaskInterface._global_mapping, IMPLEMENTATION)


def count_padding_as_text(patch: Patch) -> None:
    collate = scoring.collate

    def wrong(*args: Any, **kwargs: Any) -> Any:
        batch = collate(*args, **kwargs)
        batch.inputs["attention_mask"] = torch.ones_like(batch.inputs["attention_mask"])
        return batch

    patch.setattr("lad.checks.material.collate", wrong)
    patch.setattr("lad.model.vlm.collate", wrong)


def exchange_two_images(patch: Patch) -> None:
    outputs = ImageEncoder.encoder_outputs
    patch.setattr(ImageEncoder, "encoder_outputs", lambda self, images: outputs(self, [*images[1:], images[0]]))


def mix_up_features(patch: Patch) -> None:
    run = ImageEncoder._run

    def wrong(self: Any, images: Any, digests: Any, *rest: Any) -> Any:
        return [
            replace(image, digest=d) for image, d in zip(run(self, images, digests, *rest)[::-1], digests, strict=True)
        ]

    patch.setattr(ImageEncoder, "_run", wrong)


def stretch_a_span(patch: Patch) -> None:
    segments = PromptBuilder._segments

    def wrong(self: Any, *args: Any) -> Any:
        found = segments(self, *args)
        found[(found == 0).nonzero()[0][0]] = found.max()
        return found

    patch.setattr(PromptBuilder, "_segments", wrong)


def drop_the_line_end(patch: Patch) -> None:
    tokenize = PromptBuilder._tokenize
    patch.setattr(PromptBuilder, "_tokenize", lambda self, text, **rest: tokenize(self, text.rstrip("\n"), **rest))


def scale_the_scores(patch: Patch) -> None:
    last_row = probe.last_row
    patch.setattr(probe, "last_row", lambda q, k, mask, scaling, cap=None: last_row(q, k, mask, scaling * 1.01, cap))


def leave_the_softmax_out(patch: Patch) -> None:
    add = Collector.add
    patch.setattr(Collector, "add", lambda self, layer, row, visible=None: add(self, layer, row * 0.9, visible))


def lose_a_layer(patch: Patch) -> None:
    patch.setattr(Collector, "wants", lambda self, layer: layer != 2)


def touch_the_output(patch: Patch) -> None:
    sdpa = probe.sdpa_attention_forward

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out, rest = sdpa(*args, **kwargs)
        return out * (1 + 1e-6), rest

    patch.setattr(probe, "sdpa_attention_forward", wrong)


def continue_at_the_wrong_place(patch: Patch) -> None:
    collate = scoring.collate

    def wrong(*args: Any, **kwargs: Any) -> Any:
        batch = collate(*args, **kwargs)
        return replace(batch, next_positions=batch.next_positions + 1)

    patch.setattr("lad.model.vlm.collate", wrong)


def answer_by_chance(patch: Patch) -> None:
    prefill = scoring.prefill

    def wrong(*args: Any, **kwargs: Any) -> Any:
        output = prefill(*args, **kwargs)
        output.logits = output.logits + 1e-3 * torch.rand_like(output.logits)
        return output

    patch.setattr(scoring, "prefill", wrong)


def refuse_words(patch: Patch) -> None:
    answers = PromptBuilder.answers

    def wrong(self: Any, text: str, names: Any) -> Any:
        if "first" in names:
            raise IdentifierError("no words here")
        return answers(self, text, names)

    patch.setattr(PromptBuilder, "answers", wrong)


def see_no_images(patch: Patch) -> None:
    add = Collector.add

    def wrong(self: Any, layer: int, row: torch.Tensor, visible: Any = None) -> None:
        # a whole observation still goes through: only the first, which the checks begin with, is left alone
        add(self, layer, row, visible)
        if type(self) is not Collector:
            self.blind[layer] = torch.ones(row.shape[0], dtype=torch.bool)

    patch.setattr(Collector, "add", wrong)


FAULTS: dict[Callable[[Patch], None], set[str]] = {
    forget_the_mask: {"left_padding", "batch_equals_single"},
    count_padding_as_text: {"left_padding", "batch_equals_single"},
    exchange_two_images: {"feature_reuse"},
    mix_up_features: {"features_follow_images"},
    stretch_a_span: {"image_spans"},
    drop_the_line_end: {"text_path", "feature_reuse"},
    scale_the_scores: {"attention_row"},
    leave_the_softmax_out: {"rows_sum_to_one"},
    lose_a_layer: {"rows_sum_to_one"},
    touch_the_output: {"logits_unchanged"},
    continue_at_the_wrong_place: {"cached_scores"},
    answer_by_chance: {"deterministic", "batch_equals_single"},
    refuse_words: {"identifiers"},
    see_no_images: {"images_visible"},
}


@pytest.mark.parametrize(("fault", "found"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_found_by_its_checks(fault: Callable[[Patch], None], found: set[str], monkeypatch: Patch) -> None:
    vlm = VisionLanguageModel.load()
    fault(monkeypatch)
    failed = {result.name for result in run_checks(vlm) if not result.passed}
    assert found <= failed


def test_together_the_faults_prove_every_check() -> None:
    assert set.union(*FAULTS.values()) == {check.__name__ for check in CHECKS}


def test_a_check_that_breaks_has_failed_and_the_others_go_on(monkeypatch: Patch) -> None:
    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("shapes do not fit\nand more")

    vlm = VisionLanguageModel.load()
    monkeypatch.setattr("lad.checks.reference.Reference.last_rows", broken)
    results = {result.name: result for result in run_checks(vlm)}
    assert [name for name, result in results.items() if not result.passed] == ["attention_row"]
    assert results["attention_row"].detail == "could not be carried out: shapes do not fit"
    assert results["attention_row"].difference == math.inf


def test_a_difference_that_is_no_number_fails() -> None:
    assert not CheckResult("x", math.nan, 1.0, "").passed
    assert CheckResult("x", 0.0, 0.0, "").passed


def test_layers_are_listed_as_ranges() -> None:
    assert _ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert _ranges([]) == ""


def test_half_precisions_are_given_more_room_and_bfloat16_the_most() -> None:
    kinds = [Tolerances.of(kind, torch.device("cpu")) for kind in (torch.float32, torch.float16, torch.bfloat16)]
    assert kinds[0] == Tolerances(1e-5, 1e-5)
    assert [kind.scores for kind in kinds] == sorted(kind.scores for kind in kinds)


def test_the_command_prints_a_table_and_leaves_with_0() -> None:
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 0
    assert result.stdout.count(" pass ") == len(CHECKS)
    assert f"All {len(CHECKS)} checks passed" in result.stdout


def test_json_is_one_document_with_every_figure() -> None:
    result = CliRunner().invoke(app, ["check", "--json"])
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["layers"] == 6
    assert [entry["name"] for entry in document["checks"]] == [check.__name__ for check in CHECKS]
    for entry in document["checks"]:
        assert entry["passed"] is True
        assert 0 <= entry["difference"] <= entry["tolerance"]


def test_a_failure_leaves_with_1(monkeypatch: Patch) -> None:
    scale_the_scores(monkeypatch)
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert "1 of 13 checks failed" in result.stdout
    document = json.loads(CliRunner().invoke(app, ["check", "--json"]).stdout)
    assert document["passed"] is False
    assert [entry["name"] for entry in document["checks"] if not entry["passed"]] == ["attention_row"]


def test_a_check_that_broke_has_no_difference_in_json(monkeypatch: Patch) -> None:
    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr("lad.checks.reference.Reference.last_rows", broken)
    document = json.loads(CliRunner().invoke(app, ["check", "--json"]).stdout)
    entry = next(entry for entry in document["checks"] if not entry["passed"])
    assert (entry["name"], entry["difference"]) == ("attention_row", None)


def test_numbers_that_are_none_end_the_checks_with_advice(monkeypatch: Patch) -> None:
    vlm = VisionLanguageModel.load()
    with torch.no_grad():
        vlm.model.get_decoder().layers[0].mlp.down_proj.weight.fill_(float("inf"))
    with pytest.raises(NumericsError, match="attention of layer 1: .*not finite in float32"):
        run_checks(vlm)
