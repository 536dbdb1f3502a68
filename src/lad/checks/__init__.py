"""Does `lad` work with this model? Checks that a user runs before trusting a new one, and our tests on every family."""

from lad.checks.result import CheckResult, Tolerances
from lad.checks.suite import CHECKS, run_checks

__all__ = ["CHECKS", "CheckResult", "Tolerances", "run_checks"]
