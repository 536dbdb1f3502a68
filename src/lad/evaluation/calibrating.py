"""Calibration as part of a run: its observations are kept with the run, and methods may use them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lad.atomic import write_files
from lad.calibration import Calibration, fit_calibration
from lad.errors import RunError
from lad.evaluation.plan import samples_digest
from lad.evaluation.sources import Progress
from lad.identifiers import make_identifiers
from lad.model.calibrate import observe_calibration
from lad.model.features import FeatureCache
from lad.model.observe import BATCH_TOKENS
from lad.model.vlm import PreparedSample, VisionLanguageModel
from lad.observations import Observations, ObservationStore
from lad.prompts import MATCHING, PromptTemplate
from lad.samples import Sample


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration, with what it was fitted to where that is known.

    Attributes:
        calibration: the calibration.
        observations: of its samples under all cyclic shifts; None if it was made elsewhere.
    """

    calibration: Calibration
    observations: Observations | None = None


def calibrate_in_run(
    vlm: VisionLanguageModel,
    samples: Sequence[Sample],
    *,
    template: PromptTemplate = MATCHING,
    identifiers: str | Sequence[str] = "digits",
    folder: Path | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress | None = None,
) -> Calibrated:
    """Calibrate on labelled samples, or take the observations of an earlier call with the same samples.

    Args:
        vlm: the model.
        samples: labelled samples of the same N.
        template: the prompt's wording.
        identifiers: what names the positions in the answer.
        folder: of the run; None keeps nothing.
        batch_tokens: see :func:`lad.model.observe.observe`.
        progress: called with the number of observations just made or found.

    Raises:
        CalibrationError: see :func:`lad.model.calibrate.calibrate`.
        RunError: what lies in the folder is broken.
    """
    names = make_identifiers(identifiers, len(samples[0])) if samples else ()
    store = None
    if folder is not None and samples:
        key = json.dumps([asdict(vlm.identity(template, names)), vlm.dtype, samples_digest(samples), batch_tokens])
        store = ObservationStore(folder / f"calibration-{hashlib.sha256(key.encode()).hexdigest()[:8]}")
    if store is not None and store.parts():
        seen, made_with = store.read(0), _read_facts(store.folder)
        if progress is not None:
            progress(len(seen))
    else:
        prepared = [vlm.prepare_sample(sample) for sample in samples]
        with only_these_images(vlm, prepared):
            seen, made_with = observe_calibration(
                vlm, prepared, template=template, identifiers=identifiers, batch_tokens=batch_tokens, progress=progress
            )
        if store is not None:
            # the part comes last: where it is, the facts are too
            write_files({store.folder / _FACTS: json.dumps(made_with, indent=1).encode()})
            store.write(0, seen)
    return Calibrated(fit_calibration(seen, vlm.identity(template, names), made_with=made_with), seen)


_FACTS = "made-with.json"


def _read_facts(folder: Path) -> dict[str, str]:
    try:
        facts = json.loads((folder / _FACTS).read_bytes())
        return {str(key): str(value) for key, value in facts.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(
            f"Is missing or broken ({error}).", where=str(folder / _FACTS), hint="Delete the folder and run again."
        ) from error


@contextmanager
def only_these_images(vlm: VisionLanguageModel, group: Sequence[PreparedSample]) -> Iterator[None]:
    """Encode a group's images now, all together, and use no others while the context lasts.

    The vision tower's last digits depend on which images it takes at once. With this they depend on the group alone,
    not on what was asked before, so that a resumed run gives the numbers of an uninterrupted one.
    """
    before = vlm.encoder.cache
    vlm.encoder.cache = FeatureCache(sys.maxsize)
    try:
        images = [image for sample in group for image in sample.images]
        vlm.encoder.encode(images, [digest for sample in group for digest in sample.digests])
        yield
    finally:
        vlm.encoder.cache = before
