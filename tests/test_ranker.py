import numpy as np
import pytest
from PIL import Image

from lad.benchmarks.scenes import scene_samples
from lad.calibration import load_calibrations
from lad.decisions import DecisionOptions, decide, gather_evidence, probabilities
from lad.errors import CalibrationError, ImageError, LadError, PromptError, SampleError
from lad.model.observe import observe
from lad.ranker import Ranker, load, shipped_calibrations
from lad.samples import Sample

CALIBRATION = scene_samples(5, 4, split="calibration")
QUERY = scene_samples(1, 4)[0]


@pytest.fixture(scope="module")
def vlm():
    return load()


@pytest.fixture(scope="module")
def ranker(vlm):
    return Ranker(vlm).calibrate(CALIBRATION)


def test_rank_equals_the_rule_applied_to_the_observation(ranker, vlm):
    ranking = ranker.rank(QUERY.caption, QUERY.images)
    seen = observe(vlm, [QUERY], np.arange(4)[None])
    calibration = ranker.calibrations[4]
    wanted = probabilities(decide("agd", seen, calibration))[0]
    evidence = gather_evidence(seen, calibration, DecisionOptions()).posterior[0]
    vanilla = np.exp(seen.log_probs[0])
    got = {candidate.index: candidate for candidate in ranking.candidates}
    assert [got[k].probability for k in range(4)] == pytest.approx(wanted.tolist(), abs=1e-12)
    assert [got[k].attention for k in range(4)] == pytest.approx(evidence.tolist(), abs=1e-12)
    assert [got[k].vanilla_probability for k in range(4)] == pytest.approx(vanilla.tolist(), abs=1e-12)
    assert ranking.pick == int(wanted.argmax())
    assert ranking.vanilla_pick == int(vanilla.argmax())
    assert (ranking.method, ranking.passes) == ("agd", 1)


def test_candidates_come_best_first_and_add_up_to_one(ranker):
    ranking = ranker.rank(QUERY.caption, QUERY.images)
    chances = [candidate.probability for candidate in ranking.candidates]
    assert chances == sorted(chances, reverse=True)
    for name in ("probability", "attention", "vanilla_probability"):
        assert sum(getattr(candidate, name) for candidate in ranking.candidates) == pytest.approx(1)


def test_rank_many_answers_in_order_whatever_the_sizes(ranker):
    small, large = scene_samples(3, 4, seed=2), scene_samples(2, 8, seed=2)
    both = Ranker(ranker.vlm, ranker.calibrations).calibrate(scene_samples(5, 8, split="calibration"))
    queries = [small[0], large[0], small[1], large[1], small[2]]
    together = both.rank_many([(sample.caption, sample.images) for sample in queries])
    for sample, ranking in zip(queries, together, strict=True):
        alone = both.rank(sample.caption, sample.images)
        assert ranking.pick == alone.pick
        assert [c.probability for c in ranking.candidates] == pytest.approx(
            [c.probability for c in alone.candidates], abs=1e-5
        )


def test_no_queries_give_no_rankings(ranker):
    assert ranker.rank_many([]) == []


def test_the_same_call_gives_the_same_digits(ranker):
    assert ranker.rank(QUERY.caption, QUERY.images) == ranker.rank(QUERY.caption, QUERY.images)


def test_equal_pictures_tie(ranker):
    twice = [QUERY.images[0], QUERY.images[1], QUERY.images[0], QUERY.images[2]]
    by_index = {c.index: c for c in ranker.rank(QUERY.caption, twice).candidates}
    assert by_index[0].probability == by_index[2].probability
    assert by_index[0].attention == by_index[2].attention
    assert sum(c.probability for c in by_index.values()) == pytest.approx(1)
    everywhere = ranker.rank(QUERY.caption, [QUERY.images[0]] * 4)
    assert [c.probability for c in everywhere.candidates] == pytest.approx([0.25] * 4)
    assert everywhere.pick == 0


def test_images_come_in_any_form(ranker, tmp_path):
    picture = QUERY.images[0]
    file = tmp_path / "a.png"
    picture.save(file)
    forms = [picture, str(file), file, file.read_bytes(), np.asarray(picture)]
    first = ranker.rank(QUERY.caption, [picture, *QUERY.images[1:]])
    for form in forms:
        assert ranker.rank(QUERY.caption, [form, *QUERY.images[1:]]) == first


def test_pictures_of_any_size_are_brought_to_the_models_size(ranker):
    ranking = ranker.rank(QUERY.caption, [Image.new("RGB", (640, 90 + k), "red") for k in range(4)])
    assert sum(candidate.probability for candidate in ranking.candidates) == pytest.approx(1)


@pytest.mark.parametrize(
    ("caption", "images", "error", "words"),
    [
        ("", QUERY.images, SampleError, "empty"),
        ("a <|image_pad|> b", QUERY.images, PromptError, "control token"),
        ("a <|im_end|> b", QUERY.images, PromptError, "control token"),
        ("one", QUERY.images[:1], SampleError, "at least 2"),
        ("a \ud83d", QUERY.images, SampleError, "surrogate"),
        (3, QUERY.images, SampleError, "no text"),
        ("text", "a.png", SampleError, "no list"),
        ("nothing", None, SampleError, "no list"),
        ("none", (), SampleError, "at least 2"),
        ("seven", QUERY.images[:1] * 3, CalibrationError, "no calibration for 3 candidates"),
        ("broken", (b"xx", *QUERY.images[1:]), ImageError, "image 0"),
        ("missing", (*QUERY.images[:3], "/nowhere/x.png"), ImageError, "image 3"),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(ranker, caption, images, error, words):
    with pytest.raises(error, match=words):
        ranker.rank(caption, images)


def test_among_several_queries_the_bad_one_is_named(ranker):
    with pytest.raises(ImageError, match="query 1, image 2"):
        ranker.rank_many([(QUERY.caption, QUERY.images), ("x", (*QUERY.images[:2], b"", QUERY.images[3]))])


def test_calibration_round_trip_through_a_folder(ranker, tmp_path):
    ranker.save_calibrations(tmp_path / "made")
    again = Ranker.from_pretrained(calibration=tmp_path / "made")
    assert again.rank(QUERY.caption, QUERY.images) == ranker.rank(QUERY.caption, QUERY.images)


def test_a_calibration_for_something_else_is_refused_and_the_field_named(ranker):
    letters = Ranker(ranker.vlm, ranker.calibrations, identifiers="uppercase")
    with pytest.raises(CalibrationError, match="identifiers was"):
        letters.rank(QUERY.caption, QUERY.images)


def test_a_failed_calibration_changes_nothing(ranker):
    before = dict(ranker.calibrations)
    broken = Sample("x", (b"", b"", b""), answer=0, id="broken")
    with pytest.raises(ImageError, match="broken, image 0"):
        ranker.calibrate([*CALIBRATION, broken])
    assert ranker.calibrations == before


@pytest.mark.parametrize("wrong", [{"method": "magic"}, {"identifiers": "runes"}])
def test_what_does_not_exist_is_refused_at_once(ranker, wrong):
    with pytest.raises(LadError, match="There is no"):
        Ranker(ranker.vlm, **wrong)


def test_control_tokens_are_refused_in_identifiers_too(ranker):
    with pytest.raises(PromptError, match="list of identifiers"):
        Ranker(ranker.vlm, identifiers=["<|im_end|>", "b", "c", "d"]).calibrate(CALIBRATION)


def test_an_empty_folder_of_calibrations_is_refused(tmp_path):
    with pytest.raises(CalibrationError, match="no calibrations"):
        Ranker.from_pretrained(calibration=tmp_path)


@pytest.mark.parametrize(
    ("samples", "words"),
    [([], "no samples"), ([Sample(QUERY.caption, QUERY.images)], "no answer")],
)
def test_calibration_needs_labelled_samples(vlm, samples, words):
    with pytest.raises(LadError, match=words):
        Ranker(vlm).calibrate(samples)


def test_the_shipped_model_brings_calibrations_for_2_to_12():
    assert sorted(load_calibrations(shipped_calibrations())) == list(range(2, 13))


@pytest.mark.parametrize("count", [2, 4, 8, 10, 12])
def test_out_of_the_box_the_shipped_model_finds_the_image_in_any_order(count):
    ranker = Ranker.from_pretrained()
    samples = scene_samples(25, count, seed=11)
    queries = [(s.caption, s.images) for s in samples] + [(s.caption, s.images[::-1]) for s in samples]
    rankings = ranker.rank_many(queries)
    forward, backward = rankings[:25], rankings[25:]
    right = sum(ranking.pick == sample.answer for ranking, sample in zip(forward, samples, strict=True))
    same = sum(a.pick == count - 1 - b.pick for a, b in zip(forward, backward, strict=True))
    assert right >= 20
    assert same >= 20
