"""The HTML page: one self-contained file that loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib import resources

from fdsim import __version__
from fdsim.report.colours import palettes
from fdsim.report.figure import Figure, Listing, Page, Remark, Section, Table, Tile

_SCRIPTS = ("figures.js", "fleet_figures.js", "page.js")


def render(page: Page, *, plotly: str = "") -> str:
    """Render a report as one HTML page; it stands alone unless `plotly` says where plotly's file is beside it."""
    from plotly.offline import get_plotlyjs

    # Whatever names a scenario file contains, only these two scripts can run: the policy lists their hashes. A file
    # beside the page has no hash that browsers would check for file:// addresses: there its origin is what is allowed.
    scripts = [*([] if plotly else [get_plotlyjs()]), "\n".join(_asset(name) for name in _SCRIPTS)]
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) + (
        " 'self' file:" if plotly else ""
    )
    ending = (
        f"{plotly} has the code that draws" if plotly else "Everything on this page is in the file itself"
    )
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    return "".join(
        [
            '<!doctype html>\n<html lang="en" data-theme="light">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta name="generator" content="fdsim {__version__}">\n<link rel="icon" href="data:,">\n',
            f"<title>{_text(page.title)} · fdsim report</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n",
            *_header(page),
            '<main class="wrap">\n',
            *(piece for section in page.sections for piece in _section(section)),
            "</main>\n",
            f'<footer class="wrap">Made by fdsim {__version__}. {_text(ending)}.</footer>\n',
            f'<script type="application/json" id="fdsim-data">{_embedded(page, plotly)}</script>\n',
            f'<script src="{_text(plotly)}"></script>\n' if plotly else "",
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return resources.files("fdsim.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _prose(value: str) -> str:
    """Escape a sentence of the report, in which backticks mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(value))


def _embedded(page: Page, plotly: str) -> str:
    """Embed the figures as JSON in which no `<` can end the script element."""
    figures = {
        part.key: {"builder": part.builder, "payload": part.payload, "height": part.height_px}
        for section in page.sections
        for part in section.parts
        if isinstance(part, Figure)
    }
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", page.title).strip("-") or "run"
    data = {"palettes": palettes(), "slug": slug, "plotly": plotly, "figures": figures}
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _header(page: Page) -> Iterator[str]:
    yield '<header class="wrap">\n<div class="brand">fdsim report</div>\n'
    yield f'<h1>{_text(page.title)}</h1>\n<p class="subtitle">{_text(page.subtitle)}</p>\n'
    if page.status:
        yield f'<p class="status" role="status">{_text(page.status)}</p>\n'
    yield f'<p class="finding">{_text(page.finding)}</p>\n'
    for kind, tiles in (("results", page.results), ("costs", page.costs)):
        if tiles:
            yield f'<div class="tiles {kind}">\n'
            for tile in tiles:
                yield from _tile(tile)
            yield "</div>\n"
    yield '<noscript><p class="status">The figures need JavaScript.</p></noscript>\n</header>\n'
    yield '<nav><div class="wrap"><div class="anchors">'
    for section in page.sections:
        yield f'<a href="#{_text(section.key)}">{_text(section.title)}</a>'
    yield '</div><button type="button" class="theme">Dark</button></div></nav>\n'


def _swatch(token: str) -> str:
    return f'<i class="swatch" style="--swatch:var(--c-{_text(token.removeprefix("@"))})"></i>'


def _tile(tile: Tile) -> Iterator[str]:
    yield f'<div class="tile{" broad" if tile.fractions else ""}"><div class="caption">'
    yield f"{_swatch(tile.swatch) if tile.swatch else ''}{_text(tile.caption)}</div>"
    yield f'<div class="value">{_text(tile.value)}</div>'
    if tile.fractions:
        bars = "".join(
            f'<i style="flex:{frac:.4f};--swatch:var(--c-{_text(token[1:])})" title="{_text(name)} {frac:.1%}"></i>'
            for name, frac, token in tile.fractions
        )
        keys = "".join(
            f"<span>{_swatch(token)}{_text(name)} {frac:.0%}</span>" for name, frac, token in tile.fractions
        )
        yield f'<div class="fractions">{bars}</div><div class="keys">{keys}</div>'
    if tile.detail:
        yield f'<div class="detail">{_text(tile.detail)}</div>'
    yield "</div>\n"


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{_text(section.key)}">\n<h2>{_text(section.title)}</h2>\n<p>{_text(section.says)}</p>\n'
    for part in section.parts:
        if isinstance(part, Figure):
            yield from _figure(part)
        elif isinstance(part, Table):
            yield from _table(part)
        elif isinstance(part, Listing):
            yield from _listing(part)
        else:
            yield from _remark(part)
    yield "</section>\n"


def _figure(figure: Figure) -> Iterator[str]:
    key = _text(figure.key)
    yield f'<figure class="card" id="figure-{key}" data-key="{key}" style="margin-inline:0">\n<div class="head">'
    yield f"<figcaption><h3>{_text(figure.title)}</h3><p>{_text(figure.says)}</p></figcaption>"
    yield '<div class="tools"><button type="button" class="reset" hidden>Whole view</button>'
    yield '<button type="button" class="png" aria-label="download this figure as a picture">PNG</button>'
    yield '<button type="button" class="csv" aria-label="download the data of this figure as CSV">CSV</button></div></div>\n'
    yield f'<div class="controls"></div><div class="plot" style="height:{figure.height_px}px"></div><div class="keybox"></div>'
    if figure.remark:
        yield f'<p class="remark">{_prose(figure.remark)}</p>'
    yield "</figure>\n"


def _table(table: Table) -> Iterator[str]:
    case = f' data-case="{_text(table.case)}"' if table.case else ""
    yield f'<div class="card" id="table-{_text(table.key)}"{case}><h3>{_text(table.title)}</h3>'
    yield f'<p class="says">{_text(table.says)}</p>'
    prose = ' class="prose"' if table.prose else ""
    heads = "".join(f'<th scope="col">{_text(column)}</th>' for column in table.columns)
    yield f'<div class="scroll"><table{prose}><thead><tr>{heads}</tr></thead><tbody>'
    for index, row in enumerate(table.rows):
        swatch = _swatch(table.swatches[index]) if table.swatches else ""
        yield f'<tr><th scope="row">{swatch}{_text(row[0])}</th>'
        cells = zip(table.columns[1:], row[1:], strict=True)
        yield "".join(f'<td data-label="{_text(name)}">{_text(cell)}</td>' for name, cell in cells) + "</tr>"
    yield "</tbody></table></div>"
    if table.remark:
        yield f'<p class="remark">{_prose(table.remark)}</p>'
    yield "</div>\n"


def _remark(remark: Remark) -> Iterator[str]:
    yield f'<div class="card"><h3>{_text(remark.title)}</h3><p class="says">{_prose(remark.says)}</p></div>\n'


def _listing(listing: Listing) -> Iterator[str]:
    yield f'<div class="card"><h3>{_text(listing.title)}</h3><p class="says">{_text(listing.says)}</p><dl>'
    for name, value in listing.facts:
        yield f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"
    yield f"</dl><details><summary>Show the scenario</summary><pre>{_text(listing.text)}</pre></details></div>\n"
