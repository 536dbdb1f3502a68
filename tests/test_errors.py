from __future__ import annotations

import pytest

from lad import errors
from lad.errors import DependencyError, LadError, ModelError, NumericsError


@pytest.mark.parametrize(
    ("where", "hint", "message"),
    [
        (None, None, "It is broken."),
        ("a.png", None, "a.png: It is broken."),
        (None, "Mend it.", "It is broken. Mend it."),
        ("a.png", "Mend it.", "a.png: It is broken. Mend it."),
    ],
)
def test_a_message_says_where_what_and_how_to_put_it_right(where: str | None, hint: str | None, message: str) -> None:
    error = LadError("It is broken.", where=where, hint=hint)
    assert str(error) == message
    assert (error.what, error.where, error.hint) == ("It is broken.", where, hint)


def test_every_kind_is_caught_as_one() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 9
    assert all(issubclass(kind, LadError) for kind in kinds)
    assert issubclass(NumericsError, ModelError)


def test_a_missing_package_names_the_extra_to_install() -> None:
    assert str(DependencyError("matplotlib", "figures")) == (
        "This needs the package 'matplotlib', which is not installed. Install it with: pip install 'lad-vlm[figures]'"
    )
