"""What a configuration may say, and what it is told when it says something else."""

from __future__ import annotations

import json

import pytest

from lad.errors import LadError, PromptError, RunError
from lad.evaluation.config import SHIPPED_LACKS, DatasetSpec, RunConfig, read_config
from lad.evaluation.prompts import load_prompts
from lad.prompts import MATCHING


@pytest.fixture
def read(tmp_path):
    def write_and_read(text):
        file = tmp_path / "run.yaml"
        file.write_text(text)
        return read_config(file)

    return write_and_read


def test_everything_at_once(read, tmp_path):
    (tmp_path / "model").mkdir()
    run = read(
        """
name: all
models:
  - model: null
  - {model: model, name: mine, dtype: bfloat16, image_size: 336, lacks: [yes_no]}
  - org/other
datasets:
  - {scenes: random}
  - {name: photos, samples: photos.jsonl, calibration: five.jsonl}
candidates: [4, 8]
identifiers: [digits, [x, y, z, w, a, b, c, d]]
methods: [vanilla, {name: agd_shifts, shifts: 3, samples: 7, label: three}, "agd:top_k=4"]
orders: 3
seed: 2
limit: 50
part_size: 8
prompt: words.json
decisions: {temperature: 3, layer_range: [1, 4], layer_choice: all}
"""
    )
    assert [model.name for model in run.models] == ["shipped", "mine", "other"]
    assert [model.source for model in run.models] == [None, str(tmp_path / "model"), "org/other"]
    assert run.models[0].lacks == SHIPPED_LACKS
    assert run.models[1].lacks == ("yes_no",)
    assert run.models[1].options == {"dtype": "bfloat16", "image_size": 336}
    assert run.datasets[0] == DatasetSpec("random", scenes="random")
    assert run.datasets[1].samples == tmp_path / "photos.jsonl"
    assert run.datasets[1].calibration == tmp_path / "five.jsonl"
    assert run.candidates == (4, 8)
    assert run.identifiers == ("digits", tuple("xyzwabcd"))
    assert [(spec.label, spec.samples) for spec in run.methods] == [
        ("vanilla", None),
        ("three", 7),
        ("agd (top_k=4)", None),
    ]
    assert (run.orders, run.seed, run.limit, run.part_size) == (3, 2, 50, 8)
    assert run.prompt == tmp_path / "words.json"
    assert (run.decisions.temperature, run.decisions.layer_range, run.decisions.layer_choice) == (3, (1, 4), "all")


def test_little_is_enough(read):
    run = read("datasets: {scenes: adversarial}")
    assert run.name == "run"
    assert run == RunConfig(datasets=(DatasetSpec("adversarial", scenes="adversarial"),), name="run")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "Must be a mapping"),
        ("datasets: [", "no valid YAML"),
        ("datasets: [{scenes: random}]\ncolour: red", "Unknown key 'colour'"),
        ("name: x", "needs datasets"),
        ("datasets: [{scenes: random}, {scenes: random}]", "called 'random'"),
        ("datasets: [{scenes: odd}]", "no scenes 'odd'"),
        ("datasets: [{scenes: random, samples: a.jsonl}]", "either scenes or a file"),
        ("datasets: [{scenes: random, colour: red}]", "must be a mapping"),
        ("datasets: [{scenes: random}]\nmodels: [{model: a, size: 3}]", "no key 'size'"),
        ("datasets: [{scenes: random}]\nmodels: [{model: a, lacks: [wings]}]", "no ability 'wings'"),
        ("datasets: [{scenes: random}]\nmethods: [magic]", "no method 'magic'"),
        ("datasets: [{scenes: random}]\ncandidates: four", "wrong type"),
        ("datasets: [{scenes: random}]\norders: 0", "at least 1"),
        ("datasets: [{scenes: random}]\ndecisions: {temperature: -1}", "temperature"),
        ("datasets: [{scenes: random}]\ndecisions: {heat: 1}", "wrong type"),
    ],
)
def test_what_cannot_be(read, text, words):
    with pytest.raises(LadError, match=words):
        read(text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RunError, match=r"none\.yaml: Cannot be read"):
        read_config(tmp_path / "none.yaml")


def test_prompts_of_ones_own(tmp_path):
    file = tmp_path / "words.json"
    ours = load_prompts()
    assert ours.matching.digest == MATCHING.digest
    file.write_text(json.dumps({"numbered": "{count}: {caption}", "listed": "{identifiers}: {caption}"}))
    changed = load_prompts(file)
    assert changed.matching.numbered == "{count}: {caption}"
    assert changed.instruction.digest == ours.instruction.digest
    texts = {"numbered": "{caption} {marker} N", "listed": "{caption} {marker} L", "marker": "So:"}
    pointwise = {"text": "{caption}? {yes}/{no}", "yes": "right", "no": "wrong"}
    file.write_text(json.dumps({"self_consistency": texts, "pointwise": pointwise}))
    changed = load_prompts(file)
    assert changed.matching.digest == MATCHING.digest
    assert (changed.self_consistency.listed, changed.marker) == ("{caption} So: L", "So:")
    assert (changed.pointwise.render(["1"], "a dog"), changed.yes) == ("a dog? right/wrong", "right")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "JSON object"),
        ("{", "no valid JSON"),
        ('{"other": {}}', "no prompt 'other'"),
        ('{"instruction": {"numbered": "{caption}"}}', "must have the texts numbered, listed"),
        ('{"instruction": {"numbered": "{caption}", "listed": "x"}}', "'instruction'.*caption"),
        ('{"pointwise": {"text": "{caption} {maybe}", "yes": "y", "no": "n"}}', "'maybe'"),
        ('{"pointwise": {"text": "{caption}", "yes": " ", "no": "n"}}', "'yes'.*empty"),
    ],
)
def test_prompts_that_cannot_be(tmp_path, content, words):
    file = tmp_path / "words.json"
    file.write_text(content)
    with pytest.raises(PromptError, match=words):
        load_prompts(file)
