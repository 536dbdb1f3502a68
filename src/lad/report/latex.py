"""Tables as LaTeX, to be input into a paper; they need the package booktabs and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from lad.report.exhibits import Table

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "τ": r"$\tau$",
}  # fmt: skip


def table_latex(table: Table) -> str:
    """A floating table with its title as caption and its notes below; its label is ``tab:NAME``."""
    letters = "".join(column.align[0] for column in table.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{letters}}}",
        r"\toprule",
        _line([column.label for column in table.columns]),
        r"\midrule",
        *(_line(table.cells(row)) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {escape(note)}}}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    escaped = "".join(_SPECIAL.get(character, character) for character in text)
    # a minus between numbers is longer than a hyphen
    return f"${escaped}$" if _is_number(text) and text[0] in "+-" else escaped


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _line(cells: Sequence[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
