"""Methods that ask under several orders: permutation averaging, AGD over shifts, and PriDe by its authors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration import fit_calibration
from lad.decisions import (
    adaptive_average,
    choose_theta,
    decide,
    far_shifts,
    permutation_average,
    position_prior,
    without_prior,
)
from lad.errors import DecisionError
from lad.evaluation.methods.base import (
    DECISION_TYPES,
    Gathered,
    Method,
    Options,
    Outcome,
    Setting,
    outcome_of_candidates,
    outcome_of_positions,
)
from lad.evaluation.sources import Source, Views, as_orders
from lad.observations import Observations
from lad.samples import cyclic_orders, random_orders, to_candidates


def _cyclic(setting: Setting) -> Views | None:
    return setting.others("cyclic", cyclic_orders(setting.candidates))


def _shifts(setting: Setting, wanted: int) -> NDArray[np.int64]:
    """The first ``wanted`` cyclic shifts (K, N), far ones first; 0 for all N."""
    count = setting.candidates
    if not 0 <= wanted <= count:
        raise DecisionError(f"There are {count} cyclic shifts of {count} images, not {wanted}.")
    return cyclic_orders(count)[far_shifts(count)[: wanted or count]]


def _shift_sources(setting: Setting, options: Options) -> Sequence[Source | None]:
    _shifts(setting, options.get("shifts", 0))
    return [setting.base(), _cyclic(setting)]


def _average(
    gathered: Gathered, relative: NDArray[np.int64], other: Views | None, combine: Any, **facts: Any
) -> Outcome:
    setting = gathered.setting
    seen = gathered.views([setting.base(), other], setting.composed(relative))
    shape = (setting.samples, len(setting.orders), len(relative), setting.candidates)
    scores = permutation_average(seen.log_probs.reshape(shape), seen.orders.reshape(shape), combine=combine)
    return outcome_of_candidates(scores, len(relative), **facts)


def _cyclic_average(gathered: Gathered, options: Options) -> Outcome:
    relative = _shifts(gathered.setting, options["shifts"])
    return _average(gathered, relative, _cyclic(gathered.setting), options["combine"])


def _random(setting: Setting, options: Options) -> tuple[NDArray[np.int64], Views | None]:
    relative = random_orders(setting.candidates, options["number"], setting.seed + 1)
    return relative, setting.others("random", relative)


def _random_average(gathered: Gathered, options: Options) -> Outcome:
    relative, other = _random(gathered.setting, options)
    wanted, facts = options["number"], {}
    if len(relative) < wanted:
        facts["note"] = f"{wanted} orders were asked for; there are only {len(relative)} of them, all were taken."
    return _average(gathered, relative, other, options["combine"], **facts)


def _rule_by_shift(gathered: Gathered, options: Options, wanted: int) -> NDArray[np.float64]:
    """A rule's scores by candidate, (S * T, K, N), under the first K shifts of each order."""
    setting = gathered.setting
    relative = _shifts(setting, wanted)
    seen = gathered.views([setting.base(), _cyclic(setting)], setting.composed(relative))
    scores = decide(options["rule"], seen, gathered.calibration, gathered.options(options))
    return to_candidates(scores, seen.orders).reshape(-1, len(relative), setting.candidates)


def _agd_shifts(gathered: Gathered, options: Options) -> Outcome:
    scores = _rule_by_shift(gathered, options, options["shifts"])
    shape = (gathered.setting.samples, len(gathered.setting.orders), -1)
    return outcome_of_candidates(scores.mean(axis=1).reshape(shape), scores.shape[1])


def _agd_adaptive(gathered: Gathered, options: Options) -> Outcome:
    theta = options["theta"]
    if theta is None:
        theta = choose_theta(held_out_scores(gathered, options), options["passes"])
    adapted = adaptive_average(_rule_by_shift(gathered, options, 0), theta)
    shape = (gathered.setting.samples, len(gathered.setting.orders), -1)
    told = None if math.isinf(theta) else theta  # JSON has no infinity
    return outcome_of_candidates(adapted.scores.reshape(shape), float(adapted.passes.mean()), theta=told)


def held_out_scores(gathered: Gathered, options: Options) -> NDArray[np.float64]:
    """A rule's scores on the calibration samples, (K * N, N, N): each sample from each shift on, the far ones first.

    Each sample is scored with a calibration from the others, so that its margins are those of a new query.

    Raises:
        DecisionError: fewer than two calibration samples are at hand.
    """
    seen, fitted = gathered.calibration_observations, gathered.calibration
    names = list(dict.fromkeys(seen.samples)) if seen is not None else []
    if seen is None or fitted is None or len(names) < 2:
        raise DecisionError(
            "The adaptive budget is chosen on at least two calibration samples, and they are not at hand.",
            hint="Calibrate on samples in the same run (--calibration-samples), or give theta: agd_adaptive:theta=0.5.",
        )
    owner = np.array([names.index(name) for name in seen.samples])
    options_of_rule = gathered.options(options)
    return np.concatenate(
        [
            _from_every_shift(
                decide(
                    options["rule"],
                    own := seen.take(owner == index),
                    fit_calibration(seen.take(owner != index), fitted.identity, average=fitted.average),
                    options_of_rule,
                ),
                own,
            )
            for index in range(len(names))
        ]
    )


def _from_every_shift(scores: NDArray[np.float64], seen: Observations) -> NDArray[np.float64]:
    """One sample's scores (N, N) under its N shifts as N queries, (N, N, N): query q begins at shift q."""
    count = seen.count
    by_shift = np.empty((count, count))
    by_shift[seen.orders[:, 0]] = to_candidates(scores, seen.orders)  # shift s shows candidate s first
    return np.asarray(by_shift[(np.arange(count)[:, None] + far_shifts(count)[None, :]) % count])


def _prior_source(setting: Setting, options: Options) -> Views:
    """The samples that the prior is estimated on, under all cyclic shifts of all orders."""
    share = options["share"]
    if not 0 < share <= 1:
        raise DecisionError(f"The share of samples for PriDe's prior must lie between 0 and 1, not at {share}.")
    number = max(1, math.ceil(share * setting.samples - 1e-9))
    rng = np.random.default_rng([setting.seed, setting.samples])
    chosen = sorted(int(index) for index in rng.choice(setting.samples, number, replace=False))
    orders = tuple(dict.fromkeys(as_orders(setting.composed(cyclic_orders(setting.candidates)))))
    return replace(setting.base(), name="cyclic-chosen", orders=orders, chosen=tuple(chosen))


def _prior_sources(setting: Setting, options: Options) -> Sequence[Source]:
    return [setting.base()] if options["prior"] is not None else [setting.base(), _prior_source(setting, options)]


def _pride_authors(gathered: Gathered, options: Options) -> Outcome:
    """Each of the T orders is a test of its own, with a prior of its own."""
    setting = gathered.setting
    times, count = len(setting.orders), setting.candidates
    base = gathered.observations(setting.base())
    if options["prior"] is not None:
        return outcome_of_positions(without_prior(base.log_probs, options["prior"]), base.orders, times, 1)
    source = _prior_source(setting, options)
    seen = gathered.views([source], setting.composed(cyclic_orders(count)))
    chosen = list(source.chosen or ())
    shape = (len(chosen), times, count, count)
    log_probs = seen.log_probs.reshape(shape)
    priors = [position_prior(log_probs[:, order]) for order in range(times)]
    by_position = base.log_probs.reshape(-1, times, count)
    by_position = np.stack([without_prior(by_position[:, t], priors[t]) for t in range(times)], axis=1)
    scores = to_candidates(by_position, base.orders.reshape(by_position.shape))
    # the samples behind the prior were asked N times anyway, so they are answered by their average
    scores[chosen] = permutation_average(log_probs, seen.orders.reshape(shape))
    passes = (len(chosen) * count + setting.samples - len(chosen)) / setting.samples
    prior = np.mean(priors, axis=0).tolist()
    return outcome_of_candidates(scores, passes, prior=prior, samples_for_prior=len(chosen))


def _averaging(name: str, combine: str, description: str) -> Method:
    return Method(
        name=name,
        kind="orders",
        description=description,
        sources=_shift_sources,
        decide=_cyclic_average,
        defaults={"shifts": 0, "combine": combine},
    )


_RULE_OPTIONS: dict[str, Any] = {"rule": "agd", **dict.fromkeys(DECISION_TYPES)}

SEVERAL_ORDERS: tuple[Method, ...] = (
    Method(
        name="pride_authors",
        kind="orders",
        description="PriDe by its authors: a prior of positions from a share of the samples, no labels",
        sources=_prior_sources,
        decide=_pride_authors,
        defaults={"share": 0.05, "prior": None},
        types={"prior": list},
    ),
    _averaging("permutation_average", "log", "mean log-probability over the cyclic shifts"),
    _averaging("permutation_average_prob", "prob", "mean probability over the cyclic shifts"),
    _averaging("permutation_borda", "borda", "Borda count over the cyclic shifts"),
    _averaging("permutation_kemeny", "kemeny", "Kemeny ranking over the cyclic shifts"),
    Method(
        name="permutation_random",
        kind="orders",
        description="mean log-probability over random orders, the identity among them",
        sources=lambda setting, options: [setting.base(), _random(setting, options)[1]],
        decide=_random_average,
        defaults={"number": 16, "combine": "log"},
    ),
    Method(
        name="agd_shifts",
        kind="orders",
        description="AGD averaged over some cyclic shifts, the far ones first",
        sources=_shift_sources,
        decide=_agd_shifts,
        defaults={"shifts": 2, **_RULE_OPTIONS},
        types=DECISION_TYPES,
    ),
    Method(
        name="agd_adaptive",
        kind="orders",
        description="AGD, asked again under a further shift only while the answer is close",
        sources=lambda setting, options: [setting.base(), _cyclic(setting)],
        decide=_agd_adaptive,
        defaults={"passes": 1.25, "theta": None, **_RULE_OPTIONS},
        types={"theta": float, **DECISION_TYPES},
    ),
)
