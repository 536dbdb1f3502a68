"""A report as one HTML file that needs nothing else: no network, no other file, no server."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files

from lad.report.exhibits import Drawing, Exhibit, Report, Table
from lad.report.figures.style import LABELS

_BROWSER = """
<section id="browser" aria-labelledby="browser-title">
<h2 id="browser-title">Samples</h2>
<div class="bar">
<label>From <select id="browse-group"></select></label>
<label>Compare with <select id="browse-other"></select></label>
<label>Show <select id="browse-filter">
<option value="all">all</option>
<option value="gained" data-with="%a wrong, %b right"></option>
<option value="lost" data-with="%a right, %b wrong"></option>
<option value="both_wrong" data-with="%a and %b wrong"></option>
<option value="moves">those whose answer moves with the order</option>
<option value="overlay">those with attention by patch</option>
</select></label>
<label>Order <select id="browse-order"></select></label>
<label><input type="checkbox" id="browse-overlay"> attention by patch</label>
<label>Find <input type="search" id="browse-search" size="16" placeholder="words of the caption"></label>
<span id="browse-count" role="status"></span>
</div>
<p class="hint">In the list: <kbd>&uarr;</kbd> <kbd>&darr;</kbd> other sample, <kbd>&larr;</kbd> <kbd>&rarr;</kbd>
other order, <kbd>o</kbd> attention by patch. Anywhere: <kbd>/</kbd> find. "Says" is the model's own answer, "looks" the
attention of its last token on each picture, "purified" that attention relative to what each position draws anyway.</p>
<div class="panes">
<ul id="browse-list" role="listbox" tabindex="0" aria-label="Samples"></ul>
<div id="browse-shown"></div>
</div>
</section>
"""

# nothing may be fetched from anywhere, even if a caption tried to
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def report_html(report: Report) -> str:
    """The whole report, with its figures, styles and script inside.

    Args:
        report: its contents.

    Raises:
        DependencyError: it has figures, and matplotlib is not installed.
    """
    sections = "".join(_section(exhibit) for exhibit in report.exhibits)
    links = "".join(f'<a href="#{escape(e.name)}">{escape(_short(e))}</a>' for e in report.exhibits)
    if report.groups:
        links += '<a href="#browser">samples</a>'
        sections += _BROWSER
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    lead = "".join(f'<p class="lead">{escape(sentence)}</p>' for sentence in report.lead)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{_read('report.css')}</style>\n</head>\n"
        f"<body{' class=page' if report.one_page else ''}>\n"
        f"<header>\n<h1>{escape(report.title)}</h1>\n{lead}\n"
        f'{"" if report.one_page else f"<nav>{links}</nav>"}\n<dl class="facts">{facts}</dl>\n</header>\n'
        f"<main>{sections}</main>\n{_data(report)}<script>\n{_read('report.js')}</script>\n</body>\n</html>\n"
    )


def _section(exhibit: Exhibit) -> str:
    name = escape(exhibit.name)
    body = _table(exhibit) if isinstance(exhibit, Table) else _figure(exhibit)
    notes = "".join(f"<li>{escape(note)}</li>" for note in exhibit.notes)
    notes = f'<ul class="notes">{notes}</ul>' if notes else ""
    title = f'<h2 id="{name}-title">{escape(exhibit.title)}</h2>'
    return f'\n<section id="{name}" aria-labelledby="{name}-title">\n{title}\n{body}\n{notes}</section>\n'


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col" class="{column.align}" aria-sort="none"><button type="button">{escape(column.label)}</button>'
        "</th>"
        for column in table.columns
    )
    rows = []
    for row in table.rows:
        cells = []
        for column, shown in zip(table.columns, table.cells(row), strict=True):
            value = row.get(column.key)
            exact = f' data-value="{"" if value is None else escape(str(value))}"' if column.align == "right" else ""
            cells.append(f'<td class="{column.align}"{exact}>{escape(shown)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table class="sortable">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        "</table></div>"
    )


def _figure(drawing: Drawing) -> str:
    from lad.report.figures import draw, image_of

    image = image_of(draw(drawing)[0], dpi=144)
    # a PNG says how wide it is in its bytes 16 to 19; shown at 96 dots an inch
    width = round(int.from_bytes(image[16:20]) * 96 / 144)
    source = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return f'<figure><img alt="{escape(drawing.title)}" width="{width}" src="{source}"></figure>'


def _data(report: Report) -> str:
    if not report.groups:
        return ""
    blocks = {"names": LABELS, "data": {"groups": report.groups}, "pictures": report.pictures}
    kind = 'type="application/json"'
    return "".join(f'<script {kind} id="browse-{name}">{_json(value)}</script>\n' for name, value in blocks.items())


def _json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _short(exhibit: Exhibit) -> str:
    return exhibit.name.replace("_", " ")


def _read(name: str) -> str:
    return files("lad.report").joinpath("page", name).read_text(encoding="utf-8")
