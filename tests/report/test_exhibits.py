"""Tables, drawings and reports as values: what is printed, and what comes back from the disk."""

import json

import pytest

from lad.errors import RunError
from lad.report.exhibits import Column, Report
from lad.report.stored import FILE, read_report, store_report
from tests.report.reports import DRAWING, ROWS, TABLE, make_report


def test_values_are_shown_as_their_column_says():
    assert TABLE.cells(ROWS[0]) == ["vanilla", "51.2", ""]
    assert TABLE.cells(ROWS[1]) == ["a|b <i>", "94.9", "+43.7"]
    assert TABLE.cells(ROWS[2]) == ["agd_10%", "9.0", "-42.0"]
    # a difference that rounds to nothing has no sign
    assert TABLE.cells(ROWS[3]) == ["none", "", "0.0"]
    assert Column("x", "x", 0).show(1234.5678) == "1235"


def test_a_stored_report_comes_back_whole(tmp_path):
    report = make_report(samples=3)
    store_report(report, tmp_path)
    assert read_report(tmp_path) == report


def test_a_missing_or_broken_report_is_named(tmp_path):
    with pytest.raises(RunError, match="no report.*lad reproduce"):
        read_report(tmp_path)
    store_report(make_report(), tmp_path)
    values = json.loads((tmp_path / FILE).read_text())
    for broken in ("{", "[]", json.dumps({**values, "exhibits": [{"is": "table"}]})):
        (tmp_path / FILE).write_text(broken)
        with pytest.raises(RunError, match=f"{FILE}: Is broken"):
            read_report(tmp_path)


def test_names_are_found_and_unique():
    report = make_report()
    assert report.only(["figure1"]).exhibits == (DRAWING,)
    with pytest.raises(RunError, match="no exhibit 'table9'.*table1, figure1"):
        report.find("table9")
    with pytest.raises(RunError, match="two exhibits called 'table1'"):
        Report("x", exhibits=(TABLE, TABLE))
