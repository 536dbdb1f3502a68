"""Every method against a re-computation from plain observations, on the shipped model."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from lad.decisions import adaptive_average, choose_theta, far_shifts
from lad.decisions.ranks import borda_scores, kemeny_scores
from lad.errors import CalibrationError, DecisionError
from lad.evaluation.calibrating import calibrate_in_run
from lad.evaluation.methods import METHODS, find_method, method_names, parse_method, parse_methods
from lad.evaluation.methods.words import majority
from lad.evaluation.prompts import load_prompts
from lad.evaluation.run import evaluate, make_plan
from lad.model.adaptive import observe_adaptively
from lad.model.answering import answer, yes_or_no
from lad.model.calibrate import calibrate
from lad.model.interventions.sofa import SoftAttention, soft_attention
from lad.model.observe import observe
from lad.observations import Observations
from lad.parsing import parse_answer
from lad.samples import cyclic_orders, random_orders

N, S, T = 4, 7, 3
ORDERS = random_orders(N, T, 0)
PROMPTS = load_prompts()
ASKED = [
    *(name for name in method_names() if name not in ("chain_of_thought", "self_consistency")),
    {"name": "chain_of_thought", "max_new_tokens": 24, "samples": 3},
    {"name": "self_consistency", "max_new_tokens": 12, "paths": 4, "samples": 3},
    "agd_shifts:shifts=3,label=three",
    "agd_adaptive:theta=2,label=adaptive-2",
    "permutation_average:shifts=2,label=two",
    "permutation_random:number=100,label=all",
    "agd:use_prior=false,label=agd-without-prior",
    "pride_authors:share=0.4,label=pride-40",
]


@pytest.fixture(scope="module")
def samples(scenes):
    return scenes(S, N, setting="adversarial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "run"


@pytest.fixture(scope="module")
def known(vlm, scenes, folder):
    return calibrate_in_run(vlm, scenes(3, N, setting="adversarial", split="calibration"), folder=folder)


@pytest.fixture(scope="module")
def done(vlm, samples, known, folder):
    plan = make_plan(vlm, samples, methods=ASKED, orders=T, part_size=4)
    return evaluate(vlm, samples, known, plan, folder=folder)


@pytest.fixture(scope="module")
def result(done):
    return {one.method: one for one in done.results}


@pytest.fixture(scope="module")
def look(vlm, samples):
    """Log-probabilities by candidate, (S, N), of all samples under one order."""
    kept = {}

    def under(order):
        key = tuple(int(candidate) for candidate in order)
        if key not in kept:
            seen = observe(vlm, samples, np.array([key]))
            kept[key] = np.empty((S, N))
            for row in range(S):
                for position, candidate in enumerate(key):
                    kept[key][row, candidate] = seen.log_probs[row, position]
        return kept[key]

    return under


def _accuracy(scores, samples):
    """Of scores (S, T, N) by candidate."""
    return 100 * np.mean([scores[row, t].argmax() == samples[row].answer for row in range(S) for t in range(T)])


def _shifted(order, shift):
    return [order[(position + shift) % N] for position in range(N)]


def test_all_are_there_and_say_what_they_are(result):
    assert set(method_names()) - {"chain_of_thought", "self_consistency"} <= result.keys()
    for name in method_names():
        method = find_method(name)
        assert method.name == name
        assert method.kind in ("rule", "observations", "orders", "texts", "pointwise")
        assert len(method.description) > 10
    assert set(METHODS) < set(method_names())
    for one in result.values():
        assert 0 <= one.metrics.accuracy <= 100
        assert json.dumps(one.as_dict(), allow_nan=False)


def test_vanilla(result, look, samples):
    scores = np.stack([look(order) for order in ORDERS], axis=1)
    assert result["vanilla"].metrics.accuracy == pytest.approx(_accuracy(scores, samples))
    assert result["vanilla"].metrics.passes == 1


def test_agd_in_twenty_lines_from_what_lies_on_the_disk(result, folder, known, samples):
    def read(name):
        tables = [pq.read_table(file) for file in sorted(next(folder.glob(f"{name}-*")).glob("*.parquet"))]
        rows = [row for table in tables for row in table.to_pylist()]
        return (
            rows,
            np.array([r["log_probs"] for r in rows]),
            np.array([r["attention"] for r in rows]).reshape(len(rows), -1, N),
        )

    rows, log_probs, attention = read("calibration")
    truth = np.array([row["order"].index(row["answer"]) for row in rows])
    profile = np.array([log_probs[truth == i].mean(0) for i in range(N)])
    gain = max(profile[i, i] - profile[i, j] for i in range(N) for j in range(N) if i != j)
    bias, prior = profile - gain * np.eye(N), attention.mean(0)
    rows, log_probs, attention = read("observations")
    right = 0
    for row, scores, seen in zip(rows, log_probs, attention, strict=True):
        layers = sorted(range(len(seen)), key=lambda layer: -seen[layer].sum())[:2]
        purified = np.log(seen[layers].mean(0)) - np.log(prior[layers]).mean(0)
        posterior = np.exp(5 * purified) / np.exp(5 * purified).sum()
        right += row["order"][int(np.argmax(scores - posterior @ bias))] == row["answer"]
    assert len(rows) == S * T
    assert result["agd"].metrics.accuracy == pytest.approx(100 * right / len(rows))


def test_instruction(vlm, result, samples):
    seen = observe(vlm, samples, ORDERS, template=PROMPTS.instruction)
    right = [order[scores.argmax()] == answer for order, scores, answer in _rows(seen)]
    assert result["instruction"].metrics.accuracy == pytest.approx(100 * np.mean(right))
    assert result["instruction"].metrics.passes == 1


def _rows(seen: Observations):
    return zip(seen.orders, seen.log_probs, seen.answers, strict=True)


@pytest.mark.parametrize(
    ("name", "form", "scope"),
    [
        ("sofa", "mask", "all_image_tokens"),
        ("sofa_between_images", "mask", "between_images"),
        ("sofa_blend", "blend", "between_images"),
        ("sofa_blend_all", "blend", "all_image_tokens"),
    ],
)
def test_sofa(vlm, result, samples, name, form, scope):
    with soft_attention(vlm, SoftAttention(0.5, form, scope)):
        seen = observe(vlm, samples, ORDERS)
    right = [order[scores.argmax()] == answer for order, scores, answer in _rows(seen)]
    assert result[name].metrics.accuracy == pytest.approx(100 * np.mean(right))
    assert result[name].metrics.passes == 1


def test_attention_sorting(vlm, result, samples):
    right = []
    for sample in samples:
        for order in ORDERS:
            at = list(order)
            for _ in range(2):
                seen = observe(vlm, [sample], np.array([at]))
                weight = seen.attention[0].mean(0)
                at = [at[position] for position in sorted(range(N), key=lambda position: weight[position])]
            seen = observe(vlm, [sample], np.array([at]))
            right.append(at[int(seen.log_probs[0].argmax())] == sample.answer)
    assert result["attention_sorting"].metrics.accuracy == pytest.approx(100 * np.mean(right))
    assert result["attention_sorting"].metrics.passes == 3


def test_cyclic_permutation_averaging(result, look, samples):
    votes = np.stack(
        [np.stack([look(_shifted(order, shift)) for shift in range(N)], axis=1) for order in ORDERS], axis=1
    )  # (S, T, shifts, N)
    wanted = {
        "permutation_average": votes.mean(2),
        "permutation_average_prob": np.exp(votes).mean(2),
        "permutation_borda": borda_scores(votes),
        "permutation_kemeny": kemeny_scores(votes),
        "two": votes[:, :, [0, 2]].mean(2),
    }
    for name, scores in wanted.items():
        assert result[name].metrics.accuracy == pytest.approx(_accuracy(scores, samples)), name
        assert result[name].metrics.passes == (2 if name == "two" else N), name


def test_random_permutations(result, look, samples):
    relative = random_orders(N, 16, 1)
    scores = np.stack([np.mean([look(order[p]) for p in relative], axis=0) for order in ORDERS], axis=1)
    assert result["permutation_random"].metrics.accuracy == pytest.approx(_accuracy(scores, samples))
    assert result["permutation_random"].metrics.passes == 16


def test_more_orders_than_there_are(result):
    everything = result["all"]
    assert everything.metrics.passes == 24
    assert everything.facts["note"] == "100 orders were asked for; there are only 24 of them, all were taken."
    # all orders of all orders are the same orders
    assert everything.metrics.consistency == 100


def test_pride_by_its_authors_by_hand(result, look, samples):
    chosen = sorted(np.random.default_rng([0, S]).choice(S, math.ceil(0.4 * S), replace=False).tolist())
    assert len(chosen) == 3
    right = 0
    for order in ORDERS:
        shifts = [_shifted(order, shift) for shift in range(N)]
        priors = []
        for row in chosen:
            # log-probability at each position, averaged over the shifts
            means = [np.mean([look(shift)[row, shift[position]] for shift in shifts]) for position in range(N)]
            priors.append(np.exp(means) / np.exp(means).sum())
        prior = np.mean(priors, axis=0)
        for row, sample in enumerate(samples):
            if row in chosen:
                pick = int(np.mean([look(shift)[row] for shift in shifts], axis=0).argmax())
            else:
                scores = [look(order)[row, order[position]] - math.log(prior[position]) for position in range(N)]
                pick = order[int(np.argmax(scores))]
            right += pick == sample.answer
    assert result["pride-40"].metrics.accuracy == pytest.approx(100 * right / (S * T))
    assert result["pride-40"].metrics.passes == pytest.approx((3 * N + 4) / 7)
    assert result["pride_authors"].facts["samples_for_prior"] == 1


def test_a_prior_of_another_task(vlm, samples, result):
    prior = result["pride-40"].facts["prior"]
    plan = make_plan(vlm, samples, methods=[{"name": "pride_authors", "prior": prior}], orders=T)
    other = evaluate(vlm, samples, None, plan).results[0]
    assert other.metrics.passes == 1
    seen = observe(vlm, samples, ORDERS)
    right = [order[(scores - np.log(prior)).argmax()] == answer for order, scores, answer in _rows(seen)]
    assert other.metrics.accuracy == pytest.approx(100 * np.mean(right))


def _agd_by_shift(vlm, known, samples, orders):
    from lad.decisions import decide
    from lad.samples import to_candidates

    scores = []
    for shift in far_shifts(N):
        seen = observe(vlm, samples, np.array([_shifted(order, shift) for order in orders]))
        scores.append(to_candidates(decide("agd", seen, known.calibration), seen.orders))
    return np.stack(scores, axis=1)  # (S * T, shifts, N)


def test_agd_over_shifts_and_with_an_adaptive_budget(vlm, known, result, samples):
    scores = _agd_by_shift(vlm, known, samples, ORDERS)
    for name, number in (("agd_shifts", 2), ("three", 3)):
        averaged = scores[:, :number].mean(1).reshape(S, T, N)
        assert result[name].metrics.accuracy == pytest.approx(_accuracy(averaged, samples))
        assert result[name].metrics.passes == number
    fixed = adaptive_average(scores, 2.0)
    assert result["adaptive-2"].metrics.passes == pytest.approx(fixed.passes.mean())
    assert result["adaptive-2"].metrics.accuracy == pytest.approx(_accuracy(fixed.scores.reshape(S, T, N), samples))


def test_theta_is_chosen_on_calibration_samples_held_out(vlm, result, scenes):
    shown = scenes(3, N, setting="adversarial", split="calibration")
    from lad.evaluation.calibrating import Calibrated

    queries = []
    for index, sample in enumerate(shown):
        rest = Calibrated(calibrate(vlm, [other for k, other in enumerate(shown) if k != index]))
        queries.append(_agd_by_shift(vlm, rest, [sample], cyclic_orders(N)))
    theta = choose_theta(np.concatenate(queries), 1.25)
    assert result["agd_adaptive"].facts["theta"] == pytest.approx(theta, abs=1e-4)


def test_an_adaptive_budget_live_is_the_one_from_the_store(vlm, known, samples):
    scores = _agd_by_shift(vlm, known, samples, [np.arange(N)])
    for theta in (0.0, 1.0, 4.0, math.inf):
        stored = adaptive_average(scores, theta)
        live = observe_adaptively(vlm, samples, known.calibration, theta)
        assert live.passes.tolist() == stored.passes.tolist()
        assert live.scores == pytest.approx(stored.scores, abs=1e-4)


def test_vanilla_text(vlm, result, samples):
    images = [vlm.encode(sample) for sample in samples]
    right = []
    for order in ORDERS:
        shown = [[row[candidate] for candidate in order] for row in images]
        captions = [sample.caption for sample in samples]
        said = answer(vlm, captions, shown, PROMPTS.matching, ["1", "2", "3", "4"], max_new_tokens=2)
        for sample, texts in zip(samples, said, strict=True):
            position = parse_answer(texts[0].text, ["1", "2", "3", "4"])
            right.append(position is not None and order[position] == sample.answer)
    assert result["vanilla_text"].metrics.accuracy == pytest.approx(100 * np.mean(right))
    assert 1 <= result["vanilla_text"].tokens <= 2
    assert result["vanilla_text"].ranking is None


def test_text_methods_are_read_from_what_was_stored(result, folder, samples):
    for name, marker in (("chain_of_thought", None), ("self_consistency", "Final answer:")):
        label = next(label for label in result if label.startswith(name))
        stored = next(folder.glob(f"{name.replace('_', '-')}-*"))
        lines = [json.loads(line) for file in sorted(stored.glob("*.jsonl")) for line in file.read_text().splitlines()]
        records = [line for line in lines if "answers" in line]
        assert [record["sample"] for record in records] == [sample.id for sample in samples[:3]]
        right, valid, tokens = [], [], []
        for record, sample in zip(records, samples, strict=False):
            for texts, order, count in zip(record["answers"], ORDERS, record["tokens"], strict=True):
                votes = Counter(parse_answer(text, ["1", "2", "3", "4"], marker) for text in texts)
                del votes[None]
                pick = order[votes.most_common(1)[0][0]] if votes else -1
                valid.append(bool(votes))
                right.append(pick == sample.answer)
                tokens.append(count)
        assert result[label].metrics.accuracy == pytest.approx(100 * np.mean(right))
        assert result[label].metrics.answered == pytest.approx(100 * np.mean(valid))
        assert result[label].tokens == pytest.approx(np.mean(tokens))
        assert result[label].metrics.passes == 1
        assert result[label].samples == 3


def test_majority():
    assert majority([None, 2, 1, 1]) == 1
    assert majority([3, 0, 0, 3]) == 3
    assert majority([None, None]) is None
    assert majority([]) is None


def test_pointwise(vlm, result, samples):
    right = []
    for sample in samples:
        images = vlm.encode(sample)
        odds = yes_or_no(vlm, [sample.caption] * N, images, PROMPTS.pointwise, "yes", "no", batch_tokens=8192)
        right.append(int(odds.argmax()) == sample.answer)
    assert result["pointwise"].metrics.accuracy == pytest.approx(100 * np.mean(right))
    assert result["pointwise"].metrics.passes == N
    assert result["pointwise"].metrics.consistency == 100


def test_options_of_a_rule_may_be_its_own(vlm, known, result, samples):
    from lad.decisions import DecisionOptions, decide

    seen = observe(vlm, samples, ORDERS)
    scores = decide("agd", seen, known.calibration, DecisionOptions(use_prior=False))
    right = [
        order[row.argmax()] == answer for order, row, answer in zip(seen.orders, scores, seen.answers, strict=True)
    ]
    assert result["agd-without-prior"].metrics.accuracy == pytest.approx(100 * np.mean(right))


def test_methods_share_what_they_can(done, vlm):
    names = [source.name for source in done.plan.sources]
    assert names.count("observations") == 1
    assert names.count("cyclic") == 1
    # 3 orders of 4, each with 3 further shifts, less those that are among the 3
    cyclic = next(source for source in done.plan.sources if source.name == "cyclic")
    assert len(cyclic.orders) <= 9
    assert len(set(cyclic.orders)) == len(cyclic.orders)
    assert not set(cyclic.orders) & {tuple(order) for order in ORDERS.tolist()}
    assert done.observed == done.plan.passes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("magic", "no method 'magic'"),
        ("agd_shifts:shift=2", "no option 'shift'"),
        ("agd_shifts:shifts", "has no value"),
        ("agd_shifts:shifts=two", "must be of type int"),
        ("agd_shifts:shifts=2.5", "must be of type int"),
        ("agd:use_prior=perhaps", "must be of type bool"),
        ("agd:samples=0", "at least 1 sample"),
        ({"name": "pride_authors", "prior": 3}, "must be of type list"),
        ({"name": "agd_shifts", "shifts": True}, "must be of type int"),
    ],
)
def test_methods_that_cannot_be(text, words):
    with pytest.raises(DecisionError, match=words):
        parse_method(text)


def test_labels_must_differ():
    assert [spec.label for spec in parse_methods(["agd", "agd:temperature=3"])] == ["agd", "agd (temperature=3)"]
    with pytest.raises(DecisionError, match="called 'agd'"):
        parse_methods(["default", "agd"])
    assert len(parse_methods(["all"])) == len(method_names())
    assert [spec.name for spec in parse_methods(["rules", "permutation_average"])] == list(METHODS)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("agd_shifts:shifts=9", "4 cyclic shifts"),
        ("pride_authors:share=0", "between 0 and 1"),
        ("sofa:sigma=2", "sigma"),
        ("permutation_average:combine=mean", "way to combine"),
    ],
)
def test_options_that_cannot_be_are_refused(vlm, samples, known, method, words):
    with pytest.raises(DecisionError, match=words):
        evaluate(vlm, samples[:2], known, make_plan(vlm, samples[:2], methods=[method], orders=2))


def test_what_is_missing_is_named(vlm, samples, known):
    plan = make_plan(vlm, samples[:2], methods=["agd"], orders=2)
    with pytest.raises(DecisionError, match="needs a calibration"):
        evaluate(vlm, samples[:2], None, plan)
    plan = make_plan(vlm, samples[:2], methods=["agd_adaptive"], orders=2)
    with pytest.raises(DecisionError, match="not at hand"):
        evaluate(vlm, samples[:2], known.calibration, plan)
    plan = make_plan(vlm, samples[:2], methods=["vanilla"], identifiers="uppercase", orders=2)
    with pytest.raises(CalibrationError, match="identifiers"):
        evaluate(vlm, samples[:2], known, plan)
