"""Markdown, LaTeX and files: what a reader of the source sees."""

import pytest

from lad.errors import RunError
from lad.report.latex import table_latex
from lad.report.markdown import report_markdown, table_markdown, write_into
from lad.report.writing import write_report
from tests.report.reports import TABLE, make_report


def test_markdown_table():
    lines = table_markdown(TABLE).splitlines()
    assert lines[0] == "| method | accuracy | difference |"
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[3] == r"| a\|b \<i> | 94.9 | +43.7 |"
    assert lines[-1] == "Ours is small & slow.  "


def test_markdown_report_names_its_figures():
    text = report_markdown(make_report())
    assert "# A report\n\nIn short.\n\n* Model: tiny\n" in text
    assert "![Figure 1: confusion](figures/figure1.png)" in text


def test_latex_table():
    lines = table_latex(TABLE).splitlines()
    assert lines[4] == r"\begin{tabular}{lrr}"
    assert r"a|b \textless{}i\textgreater{} & 94.9 & $+43.7$ \\" in lines
    assert r"agd\_10\% & 9.0 & $-42.0$ \\" in lines
    assert lines[3] == r"\label{tab:table1}"
    assert r"\par\smallskip{\footnotesize Ours is small \& slow.}" in lines


def test_everything_is_written(tmp_path):
    files = write_report(make_report(), tmp_path / "run")
    names = [file.relative_to(tmp_path / "run").as_posix() for file in files]
    assert names == ["report.html", "report.md", "tables/table1.tex", "figures/figure1.png", "figures/figure1.pdf"]
    assert all(file.stat().st_size > 300 for file in files)
    assert (tmp_path / "run/figures/figure1.pdf").read_bytes().startswith(b"%PDF")


def test_a_document_keeps_all_but_its_places(tmp_path):
    document = tmp_path / "README.md"
    before = "# Mine\n\n<!-- lad report: table1 -->\nold\n<!-- end of table1 -->\n\nEnd.\n"
    document.write_text(before)
    assert write_into(make_report(), document) == [document]
    text = document.read_text()
    assert text.startswith("# Mine\n\n<!-- lad report: table1 -->\n\n| method |")
    assert text.endswith("<!-- end of table1 -->\n\nEnd.\n")
    assert "old" not in text
    # a second time changes nothing
    write_into(make_report(), document)
    assert document.read_text() == text


def test_a_document_gets_its_figures(tmp_path):
    document = tmp_path / "docs.md"
    document.write_text("<!-- lad report: figure1 --><!-- end of figure1 -->")
    write_into(make_report(), document, only=["figure1"], figures="images/run")
    assert "![Figure 1: confusion](images/run/figure1.png)" in document.read_text()
    assert (tmp_path / "images/run/figure1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "only", "message"),
    [
        ("nothing", None, "no place for anything"),
        ("nothing", ["table1"], "no place for 'table1'"),
        ("<!-- end of table1 --><!-- lad report: table1 -->", None, "no place for 'table1'"),
        ("<!-- lad report: table1 -->", None, "no place for 'table1'"),
        ("x", ["table7"], "no exhibit 'table7'"),
    ],
)
def test_a_document_without_a_place_is_left_alone(tmp_path, text, only, message):
    document = tmp_path / "docs.md"
    document.write_text(text)
    with pytest.raises(RunError, match=message):
        write_into(make_report(), document, only=only)
    assert document.read_text() == text


def test_a_missing_document_is_named(tmp_path):
    with pytest.raises(RunError, match=r"none\.md: Cannot be read"):
        write_into(make_report(), tmp_path / "none.md")
