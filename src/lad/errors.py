"""Errors written for people: what is wrong, where, and how to put it right.

Everything `lad` raises on purpose is a :class:`LadError`. The command line prints its message and exits
with code 2; no traceback reaches the user.
"""

from __future__ import annotations


class LadError(Exception):
    """Base of all errors that a user can put right.

    Args:
        what: what is wrong, in one sentence.
        where: the file, sample or index it concerns; printed in front.
        hint: what to do about it; printed after.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(" ".join(part for part in (f"{where}: {what}" if where else what, hint) if part))


class ImageError(LadError):
    """An image could not be read, or is outside the limits."""


class SampleError(LadError):
    """A sample, or a file of samples, is not usable."""


class IdentifierError(LadError):
    """Identifiers are ambiguous, too few, or cannot be tokenised in the place of the answer."""


class PromptError(LadError):
    """A prompt template or a caption cannot be used."""


class ModelError(LadError):
    """A model cannot be loaded, or lacks something that `lad` needs."""


class NumericsError(ModelError):
    """A model produced scores that are not finite."""


class CalibrationError(LadError):
    """A calibration is missing, broken, or was made for something else."""


class DecisionError(LadError):
    """A decision rule or one of its options does not exist or does not apply."""


class RunError(LadError):
    """A run folder is unusable, or belongs to another plan."""


class DependencyError(LadError):
    """An optional part is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package!r}, which is not installed.",
            hint=f"Install it with: pip install 'lad-vlm[{extra}]'",
        )
