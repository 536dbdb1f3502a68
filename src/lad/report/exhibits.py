"""What a report is made of, as plain values: tables, drawings, and the samples behind them.

Everything here can be written to JSON and read back, so that a report is made anew from a stored run without a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from lad.errors import RunError

Value: TypeAlias = "str | float | int | None"
Row: TypeAlias = Mapping[str, Value]
Align = Literal["left", "right"]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: of the rows' values.
        label: what its head says.
        digits: after the point; None for texts.
        signed: differences carry their sign.
    """

    key: str
    label: str
    digits: int | None = None
    signed: bool = False

    @property
    def align(self) -> Align:
        """Texts to the left, numbers to the right."""
        return "left" if self.digits is None else "right"

    def show(self, value: Value) -> str:
        """A value as it is printed; nothing for None."""
        if value is None:
            return ""
        if self.digits is None or isinstance(value, str):
            return str(value)
        # a difference that rounds to nothing has no sign
        shown = round(float(value), self.digits) + 0.0
        return f"{shown:{'+' if self.signed and shown else ''}.{self.digits}f}"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: short and unique in its report, for instance "table1".
        title: in words.
        columns: from left to right.
        rows: values by the columns' keys; other keys are ignored.
        notes: what a reader must know, above all what differs from what it is compared with.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def cells(self, row: Row) -> list[str]:
        """A row as it is printed."""
        return [column.show(row.get(column.key)) for column in self.columns]


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn.

    Attributes:
        name: short and unique in its report, for instance "figure1".
        title: in words; what a reader who cannot see the figure is told too.
        kind: a name of :data:`lad.report.figures.KINDS`.
        data: arguments of that function, plain JSON values.
        notes: as a table's.
    """

    name: str
    title: str
    kind: str
    data: Mapping[str, Any]
    notes: tuple[str, ...] = ()


Exhibit: TypeAlias = "Table | Drawing"


@dataclass(frozen=True)
class Report:
    """All of a report.

    Attributes:
        title: its heading.
        lead: what it comes to, in a sentence or a few.
        facts: what was run, as pairs of a name and a value.
        exhibits: tables and drawings in their order.
        groups: cells of the browser of samples, see :mod:`lad.report.samples`; empty for none.
        pictures: data addresses of the pictures that the groups refer to by number.
        one_page: set close, in columns, as fits a report of a page or two.
    """

    title: str
    lead: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    groups: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    pictures: tuple[str, ...] = field(default=(), repr=False)
    one_page: bool = False

    def __post_init__(self) -> None:
        names = [exhibit.name for exhibit in self.exhibits]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise RunError(f"A report has two exhibits called {repeated!r}.")

    def find(self, name: str) -> Exhibit:
        """The exhibit of a name.

        Raises:
            RunError: there is none.
        """
        for exhibit in self.exhibits:
            if exhibit.name == name:
                return exhibit
        known = ", ".join(exhibit.name for exhibit in self.exhibits)
        raise RunError(f"The report has no exhibit {name!r}.", hint=f"It has: {known}.")

    def only(self, names: Sequence[str]) -> Report:
        """The same with some of its exhibits."""
        chosen = tuple(self.find(name) for name in names)
        return replace(self, exhibits=chosen)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "title": self.title,
            "lead": list(self.lead),
            "facts": [list(pair) for pair in self.facts],
            "exhibits": [{"is": type(exhibit).__name__.lower(), **asdict(exhibit)} for exhibit in self.exhibits],
            "groups": list(self.groups),
            "pictures": list(self.pictures),
            "one_page": self.one_page,
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Report:
        """What :meth:`to_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: something is missing or of a wrong type.
        """
        return Report(
            title=str(values["title"]),
            lead=tuple(values["lead"]),
            facts=tuple((str(name), str(value)) for name, value in values["facts"]),
            exhibits=tuple(_exhibit(entry) for entry in values["exhibits"]),
            groups=tuple(values["groups"]),
            pictures=tuple(values["pictures"]),
            one_page=bool(values["one_page"]),
        )


def _exhibit(entry: Mapping[str, Any]) -> Exhibit:
    name, title, notes = str(entry["name"]), str(entry["title"]), tuple(entry["notes"])
    if entry["is"] == "drawing":
        return Drawing(name, title, str(entry["kind"]), dict(entry["data"]), notes)
    columns = tuple(Column(**column) for column in entry["columns"])
    return Table(name, title, columns, tuple(dict(row) for row in entry["rows"]), notes)
