"""The HTML report in a real Chromium: sorting, filters and the browser of samples, by mouse and by keyboard."""

import re
import time

import numpy as np
import pytest

from lad.diagnose.diagnosis import diagnose
from lad.diagnose.page import make_page
from lad.report.html import report_html
from tests.decisions.factory import make_identity
from tests.diagnose.invented import make_observations
from tests.report.reports import make_report

pytestmark = pytest.mark.browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SAMPLES = 1000


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    # photographs of a common size: they are made smaller until the file fits
    path.write_text(report_html(make_report(samples=SAMPLES, side=128, pictures=800)), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, file):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    opened = context.new_page()
    troubles = []
    opened.on("console", lambda message: troubles.append(message.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("dialog", lambda dialog: troubles.append(dialog.message))
    opened.goto(file.as_uri())
    yield opened
    context.close()
    assert troubles == []


def test_a_thousand_samples_open_quickly_from_a_small_file(page, file):
    assert file.stat().st_size < 20e6
    started = time.perf_counter()
    page.reload()
    page.wait_for_selector("#browse-shown canvas[data-drawn=yes]")
    assert time.perf_counter() - started < 3
    assert page.locator("#browse-list li").count() == SAMPLES


def column(page, index):
    return page.locator(f"#table1 tbody tr td:nth-child({index})").all_inner_texts()


def test_tables_sort_by_mouse(page):
    head = page.locator("#table1 thead button", has_text="accuracy")
    head.click()
    assert column(page, 2) == ["9.0", "51.2", "94.9", ""]
    head.click()
    assert column(page, 2) == ["94.9", "51.2", "9.0", ""]
    assert page.locator("#table1 th[aria-sort=descending]").inner_text() == "accuracy"


def test_tables_sort_by_keyboard(page):
    page.locator("#table1 thead button", has_text="method").focus()
    page.keyboard.press("Enter")
    assert column(page, 1) == ["a|b <i>", "agd_10%", "none", "vanilla"]
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert column(page, 3) == ["-42.0", "0.0", "+43.7", ""]


def shown(page):
    return page.locator("#browse-shown .caption").inner_text()


def test_samples_are_chosen_by_mouse(page):
    page.locator("#browse-list li").nth(5).click()
    assert shown(page) == "“picture number 5”"
    assert page.locator("#browse-list li[aria-selected=true]").count() == 1
    # a caption is text, whatever it says
    page.locator("#browse-list li").nth(2).click()
    assert shown(page) == "“</script><script>alert(1)</script>”"


def test_samples_are_chosen_by_keyboard(page):
    page.locator("#browse-list").focus()
    for key, wanted in (("ArrowDown", 1), ("PageDown", 11), ("ArrowUp", 10), ("End", SAMPLES - 1), ("Home", 0)):
        page.keyboard.press(key)
        assert shown(page) == f"“picture number {wanted}”"
    page.keyboard.press("End")
    selected = page.locator("#browse-list li[aria-selected=true]")
    box, frame = selected.bounding_box(), page.locator("#browse-list").bounding_box()
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]
    page.keyboard.press("ArrowRight")
    assert page.locator("#browse-order").input_value() == "1"
    assert shown(page) == f"“picture number {SAMPLES - 1}”"


def test_the_answer_each_pick_and_the_meters_are_shown(page):
    data = page.evaluate("JSON.parse(document.getElementById('browse-data').textContent).groups[0]")
    sample = data["samples"][0]
    answer = page.locator("#browse-shown .card.answer")
    assert answer.count() == 1
    assert answer.locator(".head span").first.inner_text() == str(sample["answer"] + 1)
    for method, name in enumerate(("vanilla", "PriDe", "purified attention", "AGD")):
        cells = page.locator("#browse-shown tbody tr", has=page.locator(f"th:text-is('{name}')")).locator("td")
        right = [pick == sample["answer"] for pick in sample["picks"][method]]
        assert ["✓" in text for text in cells.all_inner_texts()] == right
    meters = page.locator("#browse-shown .card").first.locator(".meter b").all_inner_texts()
    wanted = [sample[name][0][0] for name in ("said", "looked", "purified")]
    assert meters == [f"{value:.1f}%" for value in wanted]


@pytest.mark.parametrize(("kind", "first", "other"), [("gained", False, True), ("lost", True, False)])
def test_filters_leave_what_they_say(page, kind, first, other):
    page.select_option("#browse-filter", kind)
    data = page.evaluate("JSON.parse(document.getElementById('browse-data').textContent).groups[0]")
    wanted = [
        one["caption"]
        for one in data["samples"]
        if (one["picks"][0][0] == one["answer"]) is first and (one["picks"][3][0] == one["answer"]) is other
    ]
    assert 0 < len(wanted) < SAMPLES
    assert page.locator("#browse-list li > div:first-child").all_text_contents() == wanted
    assert page.locator("#browse-count").inner_text() == f"{len(wanted)} of {SAMPLES} samples"
    label = page.locator(f"#browse-filter option[value={kind}]").inner_text()
    assert label == f"vanilla {'right' if first else 'wrong'}, AGD {'right' if other else 'wrong'}"


def test_filters_and_search_work_by_keyboard(page):
    page.keyboard.press("/")
    page.keyboard.type("number 77")
    assert page.locator("#browse-list li").count() == 11
    page.locator("#browse-filter").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#browse-filter").input_value() == "gained"
    page.locator("#browse-search").fill("no such words")
    assert page.locator("#browse-shown").inner_text() == "No sample is left by these filters."


def test_attention_by_patch_is_drawn_over_the_picture(page):
    def colors():
        page.wait_for_selector("#browse-shown canvas[data-drawn=yes]")
        page.wait_for_function("document.querySelectorAll('#browse-shown canvas[data-drawn=yes]').length === 4")
        return page.evaluate("document.querySelectorAll('#browse-shown canvas')[3].toDataURL()")

    before = colors()
    page.locator("#browse-list").focus()
    page.keyboard.press("o")
    assert page.locator("#browse-overlay").is_checked()
    assert colors() != before
    page.keyboard.press("ArrowDown")
    assert "no patches were kept" in page.locator("#browse-shown").inner_text()


def test_a_diagnosis_of_eight_images_is_one_page_of_paper(browser, tmp_path):
    bias = np.random.default_rng(0).normal(size=(8, 8))
    seen, pool = (
        make_observations(0, samples=samples, count=8, bias=bias, name=name) for samples, name in ((20, "s"), (10, "c"))
    )
    facts = dict.fromkeys(("model", "revision", "parameters", "device", "dtype", "versions"), "invented")
    file = tmp_path / "page.html"
    file.write_text(report_html(make_page(diagnose(seen, pool, make_identity(8)), facts, "nothing real")))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    widths = page.evaluate("[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth])")
    assert all(inside <= outside for inside, outside in widths)
    printed = page.pdf(prefer_css_page_size=True, print_background=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
