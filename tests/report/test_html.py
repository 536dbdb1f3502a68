"""The HTML report as a file: alone, safe and small."""

import json
import re

import pytest

from lad.report.html import report_html
from lad.report.samples import PictureBook, picture_of
from tests.report.reports import make_report, make_samples


@pytest.fixture(scope="module")
def page():
    return report_html(make_report(samples=8))


def test_nothing_is_fetched_from_anywhere(page):
    # addresses: of nothing but data inside the page
    assert set(re.findall(r'(?:src|href)="(.{5})', page)) <= {"data:", "#tabl", "#figu", "#brow"}
    assert not re.search(r"https?://|@import|url\(", page)
    assert "default-src 'none'" in page


def test_captions_cannot_break_out(page):
    assert "<script>alert" not in page
    # three blocks of data and the one script
    assert page.count("<script") == page.count("</script>") == 4


def test_the_data_hold_what_the_browser_shows(page):
    data = json.loads(re.search(r'id="browse-data">(.*?)</script>', page, re.S)[1])
    pictures = json.loads(re.search(r'id="browse-pictures">(.*?)</script>', page, re.S)[1])
    sample = data["groups"][0]["samples"][2]
    assert sample["caption"] == "</script><script>alert(1)</script>"
    assert len(sample["picks"]) == len(data["groups"][0]["methods"]) == 4
    assert [sum(row) for row in sample["said"]] == pytest.approx([100] * 4, abs=0.2)
    assert max(max(one["pictures"]) for one in data["groups"][0]["samples"]) == len(pictures) - 1
    assert "patches" in data["groups"][0]["samples"][0]


def test_tables_keep_exact_values_for_sorting(page):
    assert '<td class="right" data-value="51.25">51.2</td>' in page
    assert '<td class="right" data-value=""></td>' in page


def test_a_report_without_samples_has_no_browser():
    page = report_html(make_report())
    assert 'id="browser"' not in page
    assert page.count("<script") == 1


def test_pictures_shrink_until_they_fit_and_are_kept_once():
    book = PictureBook()
    samples = make_samples(5, side=300)
    numbers = [picture_of(book, image) for image in samples[0].images * 2]
    assert numbers == [0, 1, 2, 3, 0, 1, 2, 3]
    roomy, tight = book.addresses(), book.addresses(limit=4000)
    assert sum(map(len, tight)) <= 4000 < sum(map(len, roomy))
