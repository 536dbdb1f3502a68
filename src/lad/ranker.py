"""What most users need: rank a few images by how well they fit a caption, whatever their order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lad.calibration import Calibration, load_calibrations
from lad.decisions import DecisionOptions, find_rule
from lad.errors import CalibrationError, SampleError
from lad.estimators import Average
from lad.identifiers import make_identifiers
from lad.observations import Observations
from lad.prompts import MATCHING, PromptTemplate
from lad.ranking import RankedCandidate, Ranking, rankings
from lad.samples import ImageSource, Sample

if TYPE_CHECKING:
    from lad.model.vlm import PreparedSample, VisionLanguageModel
    from lad.ranked_gallery import RankedGallery

__all__ = ["METHOD", "RankedCandidate", "Ranker", "Ranking", "load", "ranker_calibrations", "shipped_calibrations"]

METHOD = "agd"
"""The decision rule of :class:`Ranker` unless told otherwise."""

# both bound the images held in memory
_QUERIES_AT_ONCE = 64
_QUERIES_AHEAD = 8


def load(source: str | os.PathLike[str] | None = None, **options: Any) -> VisionLanguageModel:
    """Load a vision-language model: by hub name, by folder, or, without a name, the one that ships with the package.

    Args:
        source: hub name or folder.
        options: device, dtype, revision, image_size, attention, trust_remote_code; see
            :class:`lad.model.vlm.VisionLanguageModel` and :func:`lad.model.loading.load_checkpoint`.
    """
    from lad.model.vlm import VisionLanguageModel

    return VisionLanguageModel.load(source, **options)


def shipped_calibrations() -> Path:
    """Folder of the calibrations that come with the shipped model, for digits and N = 2 to 12."""
    return Path(str(files("lad") / "assets" / "calibrations"))


def ranker_calibrations(
    model: str | os.PathLike[str] | None, folder: str | os.PathLike[str] | None
) -> dict[int, Calibration]:
    """The calibrations of a folder; without one, those of the shipped model, or none for any other.

    Raises:
        CalibrationError: the folder does not exist, is empty, or one of its calibrations is broken.
    """
    if folder is None:
        return load_calibrations(shipped_calibrations()) if model is None else {}
    found = load_calibrations(folder)
    if not found:
        raise CalibrationError("There are no calibrations in this folder.", where=str(folder))
    return found


class Ranker:
    """Ranks images by a caption with one forward pass, the position bias taken off.

    Args:
        vlm: the model.
        calibrations: by number of candidates.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.
        method: a decision rule of :data:`lad.decisions.RULES`.
        options: its options.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        calibrations: Mapping[int, Calibration] | None = None,
        *,
        template: PromptTemplate = MATCHING,
        identifiers: str | Sequence[str] = "digits",
        method: str = METHOD,
        options: DecisionOptions | None = None,
    ) -> None:
        self.vlm = vlm
        self.calibrations: dict[int, Calibration] = dict(calibrations or {})
        self.template = template
        make_identifiers(identifiers, 2)
        self.identifiers = identifiers
        self.method = find_rule(method).name
        self.options = options or DecisionOptions()

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        calibration: str | os.PathLike[str] | None = None,
        template: PromptTemplate = MATCHING,
        identifiers: str | Sequence[str] = "digits",
        method: str = METHOD,
        options: DecisionOptions | None = None,
        **model_options: Any,
    ) -> Ranker:
        """Load a model and its calibrations.

        Args:
            model: hub name or folder; None for the model that ships with the package, whose calibrations ship too.
            calibration: folder of calibrations made before, for instance by ``lad calibrate``.
            template: the prompt's wording.
            identifiers: what names the positions in the answer.
            method: a decision rule of :data:`lad.decisions.RULES`.
            options: its options.
            model_options: those of :func:`load`.

        Raises:
            LadError: the model or a calibration cannot be used; the message says why.
        """
        find_rule(method)
        found = ranker_calibrations(model, calibration)
        vlm = load(model, **model_options)
        return cls(vlm, found, template=template, identifiers=identifiers, method=method, options=options)

    def calibrate(self, samples: Iterable[Sample], *, average: Average = "log") -> Ranker:
        """Calibrate on labelled samples, N forward passes each; five are enough.

        Samples of several N make one calibration each; one of the same N made before is replaced.

        Args:
            samples: labelled samples, disjoint from whatever is to be ranked or measured.
            average: see :func:`lad.calibration.fit_calibration`.

        Returns:
            This ranker.

        Raises:
            CalibrationError: no samples, or one without an answer.
        """
        from lad.model.calibrate import calibrate

        groups: dict[int, list[Sample]] = {}
        for index, sample in enumerate(samples):
            named = sample if sample.id else replace(sample, id=f"sample {index}")
            groups.setdefault(len(sample), []).append(named)
        if not groups:
            raise CalibrationError("There are no samples to calibrate on.", hint="Five labelled samples are enough.")
        made = {
            count: calibrate(self.vlm, group, template=self.template, identifiers=self.identifiers, average=average)
            for count, group in groups.items()
        }
        self.calibrations.update(made)
        return self

    def save_calibrations(self, folder: str | os.PathLike[str]) -> None:
        """Write all calibrations into a folder, for :meth:`from_pretrained`."""
        for calibration in self.calibrations.values():
            calibration.save(Path(folder))

    def rank(self, caption: str, images: Sequence[ImageSource]) -> Ranking:
        """Rank images by how well the caption describes them.

        Args:
            caption: the text.
            images: N images, N >= 2: paths, bytes, Pillow images or arrays. Equal pictures get equal probabilities.

        Raises:
            LadError: an empty caption, an unreadable image, or no calibration for N candidates.
        """
        return self._rank_samples([Sample(caption, _listed(images))])[0]

    def rank_many(self, queries: Iterable[tuple[str, Sequence[ImageSource]]]) -> list[Ranking]:
        """Rank several queries, batched; those with equally many images share forward passes.

        Args:
            queries: (caption, images) pairs.

        Returns:
            One ranking per query, in order.
        """
        return self._rank_samples(
            [Sample(caption, _listed(images), id=f"query {index}") for index, (caption, images) in enumerate(queries)]
        )

    def _rank_samples(self, samples: Sequence[Sample]) -> list[Ranking]:
        from lad.model.prefetch import prefetched

        results: dict[int, Ranking] = {}
        for count in sorted({len(sample) for sample in samples}):
            calibration = self.calibration_for(count)
            rows = [index for index, sample in enumerate(samples) if len(sample) == count]
            ready = prefetched((samples[row] for row in rows), self.vlm.prepare_sample, ahead=_QUERIES_AHEAD)
            for start in range(0, len(rows), _QUERIES_AT_ONCE):
                chunk = rows[start : start + _QUERIES_AT_ONCE]
                group = [next(ready) for _ in chunk]
                results.update(zip(chunk, self._rank(group, calibration), strict=True))
        return [results[index] for index in range(len(samples))]

    def rank_prepared(self, group: Sequence[PreparedSample]) -> list[Ranking]:
        """Rank samples of one N whose images are read already, in as few passes as can be.

        Where :meth:`rank_many` lets only prompts of equal length share a pass, here all do, padded: worth it for a few
        questions that must be answered at once.

        Args:
            group: one or more samples, as :meth:`VisionLanguageModel.prepare_sample` gives them.

        Returns:
            One ranking per sample, in order.

        Raises:
            LadError: no calibration for N candidates, or a caption that the model cannot take.
        """
        from lad.model.memory import Budget
        from lad.model.observe import BATCH_TOKENS

        count, digests = len(group[0]), [sample.digests for sample in group]
        calibration, names = self.calibration_for(count), make_identifiers(self.identifiers, count)
        pictures = [image for sample in group for image in sample.images]
        encoded = self.vlm.encoder.encode(pictures, [digest for row in digests for digest in row])
        images = [encoded[start : start + count] for start in range(0, len(encoded), count)]
        captions = [sample.caption for sample in group]
        longest = max(
            self.vlm.prompt_length(caption, row, self.template, names)
            for caption, row in zip(captions, images, strict=True)
        )

        def run(rows: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return self.vlm.observe([captions[k] for k in rows], [images[k] for k in rows], self.template, names)

        parts = [part for _, part in Budget(BATCH_TOKENS).run(range(len(group)), longest, run)]
        seen = Observations(
            log_probs=np.concatenate([log_probs for log_probs, _ in parts]),
            attention=np.concatenate([attention for _, attention in parts]),
            orders=np.tile(np.arange(count), (len(group), 1)),
            answers=np.full(len(group), -1),
            samples=tuple(sample.id for sample in group),
        )
        return rankings(seen, digests, calibration, self.method, self.options)

    def _rank(self, group: Sequence[PreparedSample], calibration: Calibration) -> list[Ranking]:
        from lad.model.observe import observe

        identity = np.arange(len(group[0]))[None, :]
        seen = observe(self.vlm, group, identity, template=self.template, identifiers=self.identifiers)
        return rankings(seen, [sample.digests for sample in group], calibration, self.method, self.options)

    def gallery(self, images: Sequence[ImageSource]) -> RankedGallery:
        """Read images once, to rank them by any number of captions, each of which then costs its own tokens only.

        Args:
            images: N images, N >= 2, as for :meth:`rank`; their rankings are the same, up to rounding.

        Raises:
            LadError: an unreadable image, no calibration for N candidates, or a model whose images attend to the text.
        """
        from lad.ranked_gallery import RankedGallery

        return RankedGallery(self, images)

    def calibration_for(self, count: int) -> Calibration:
        """The calibration for N candidates, checked to be this model's.

        Raises:
            CalibrationError: there is none, or it was made for something else.
        """
        if count not in self.calibrations:
            have = ", ".join(str(number) for number in sorted(self.calibrations))
            raise CalibrationError(
                f"There is no calibration for {count} candidates"
                + (f" (there are some for {have})." if have else "; this model has none yet."),
                hint=f"Make one from five labelled samples of {count} images: `lad calibrate`, or Ranker.calibrate.",
            )
        calibration = self.calibrations[count]
        calibration.require(self.vlm.identity(self.template, make_identifiers(self.identifiers, count)))
        return calibration


def _listed(images: Any) -> tuple[ImageSource, ...]:
    if isinstance(images, (str, bytes, os.PathLike)) or not isinstance(images, Iterable):
        raise SampleError("The images are no list of images.", hint="Give a list, of one entry per image.")
    return tuple(images)
