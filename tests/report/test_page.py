"""The report in a real browser: nothing goes wrong, nothing is fetched, everything is drawn and answers."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import fdsim
from fdsim.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
READY_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@dataclass
class Visit:
    """A page that was opened, and what went on meanwhile."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def figure(self, key: str, script: str) -> Any:
        """Evaluates a function of the figure's plotly element."""
        return self.page.evaluate(f"() => ({script})(document.querySelector('#figure-{key} .plot'))")

    def settle(self) -> None:
        """Wait until what a control asked for is drawn."""
        self.page.evaluate("() => fdsimReport.settled()")


def visit(browser: Browser, path: Path, **context: Any) -> Visit:
    page = browser.new_context(**context).new_page()
    seen = Visit(page)
    page.on("console", lambda m: seen.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (seen.complaints.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: seen.requests.append(request.url))
    # A machine busy with other tests may be slow: what matters here is that it happens.
    page.set_default_timeout(READY_MS)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    return seen


@pytest.fixture(scope="module")
def report(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tiny, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def seen(browser: Browser, report: Path) -> Visit:
    """One visit for several tests, each of which looks at figures of its own."""
    return visit(browser, report, viewport={"width": 1280, "height": 900}, color_scheme="light")


def test_nothing_goes_wrong_and_nothing_is_fetched(seen: Visit, report: Path) -> None:
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]


def test_every_figure_is_drawn(seen: Visit) -> None:
    drawn, total, failed = seen.page.evaluate("[fdsimReport.drawn, fdsimReport.total, fdsimReport.failed]")
    assert (drawn, failed) == (total, [])
    assert total >= 12
    marks = seen.page.evaluate(
        """() => [...document.querySelectorAll('figure[data-key]')].map(figure => [
            figure.dataset.key,
            figure.querySelectorAll('.plot .trace, .plot .hm, .plot .bars, .plot image').length,
            figure.querySelector('.main-svg').clientHeight])"""
    )
    assert len(marks) == total
    for key, count, height in marks:
        assert count > 0, f"{key} shows nothing"
        assert height >= 250, key


def test_hover_shows_the_numbers(seen: Visit) -> None:
    plot = seen.page.locator("#figure-accuracy .plot")
    plot.scroll_into_view_if_needed()
    box = seen.page.locator("#figure-accuracy .plot .nsewdrag").first.bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=3)
    seen.page.wait_for_selector(
        "#figure-accuracy .hoverlayer .legend, #figure-accuracy .hoverlayer .hovertext"
    )
    text = seen.page.locator("#figure-accuracy .hoverlayer").text_content() or ""
    assert "fdms" in text
    assert "%" in text


def test_hover_on_the_map_names_client_round_and_cause(seen: Visit) -> None:
    seen.page.locator("#figure-outcomes .plot").scroll_into_view_if_needed()
    box = seen.page.locator("#figure-outcomes .plot .nsewdrag").first.bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=3)
    seen.page.wait_for_selector("#figure-outcomes .hoverlayer .hovertext")
    text = seen.page.locator("#figure-outcomes .hoverlayer").text_content() or ""
    assert "round" in text
    assert "client" in text
    assert "of its rounds" in text


def test_the_slider_goes_through_the_snapshots(seen: Visit) -> None:
    opened = seen
    slider = opened.page.locator("#figure-similarity input[type=range]")
    last = opened.figure("similarity", "d => JSON.stringify(d.data[0].z)")
    slider.fill("0")
    opened.settle()
    first = opened.figure("similarity", "d => JSON.stringify(d.data[0].z)")
    assert first != last
    assert opened.page.locator("#figure-similarity output").text_content() == "2"
    assert opened.complaints == []


def test_controls_change_what_is_shown(seen: Visit) -> None:
    opened = seen
    order = "d => d.layout.yaxis.ticktext.join()"
    before = opened.figure("outcomes", order)
    opened.page.locator("#figure-outcomes .tabs button", has_text="cluster").click()
    opened.settle()
    assert opened.figure("outcomes", order) == "cluster 0,cluster 1" != before
    before = opened.figure("gantt", "d => JSON.stringify(d.data.map(t => [t.x, t.text]))")
    slider = opened.page.locator("#figure-gantt input[type=range]")
    slider.fill("0" if slider.input_value() != "0" else "1")
    opened.settle()
    assert opened.figure("gantt", "d => JSON.stringify(d.data.map(t => [t.x, t.text]))") != before
    before = opened.figure("device", "d => JSON.stringify(d.data.map(t => [...t.x]))")
    picker = opened.page.locator("#figure-device select")
    picker.select_option(index=(int(picker.input_value()) + 1) % 8)
    opened.settle()
    assert opened.figure("device", "d => JSON.stringify(d.data.map(t => [...t.x]))") != before
    opened.page.locator("#figure-accuracy .tabs button", has_text="Energy").click()
    opened.settle()
    assert "kJ" in opened.figure("accuracy", "d => d.layout.xaxis.title.text")
    assert opened.complaints == []


@pytest.mark.parametrize("figure", ["outcomes", "gantt"])
def test_csv_has_the_words_of_the_trace(seen: Visit, tiny: Path, figure: str) -> None:
    text = seen.page.evaluate("key => fdsimReport.csvOf(key)", figure)
    table = pd.read_csv(io.StringIO(text)).astype(object)
    trace = fdsim.open_run(tiny).trace.set_index(["round", "client"])
    for row in table.itertuples():
        recorded = trace.loc[(row.round - 1, row.client)]
        for column in {"outcome", "cause", "phase"} & set(table.columns):
            found = getattr(row, column)
            assert (None if pd.isna(found) else found) == (
                None if pd.isna(recorded[column]) else recorded[column]
            )


def test_every_figure_hands_out_its_data_as_csv(seen: Visit) -> None:
    for key in seen.page.evaluate("[...fdsimReport.figures.keys()]"):
        lines = seen.page.evaluate("key => fdsimReport.csvOf(key)", key).strip().split("\r\n")
        assert len(lines) > 1, key
        widths = {line.count(",") for line in lines if '"' not in line}
        assert len(widths) == 1, key
    with seen.page.expect_download() as waiting:
        seen.page.locator("#figure-accuracy .csv").click()
    assert waiting.value.suggested_filename == "tiny-accuracy.csv"
    saved = Path(waiting.value.path()).read_text()
    assert saved.startswith("strategy,round,simulated_hours,energy_kj,accuracy")
    assert len(saved.splitlines()) == 1 + 4 * 6


@pytest.fixture(scope="module")
def dark(browser: Browser, report: Path) -> Visit:
    """A visit by somebody who likes it dark."""
    return visit(browser, report, viewport={"width": 1280, "height": 900}, color_scheme="dark")


def theme(opened: Visit) -> Any:
    return opened.page.evaluate("document.documentElement.dataset.theme")


def test_light_and_dark(dark: Visit) -> None:
    background, line = "() => getComputedStyle(document.body).backgroundColor", "d => d.data[1].line.color"
    before, colour = dark.page.evaluate(background), dark.figure("accuracy", line)
    assert theme(dark) == "dark"
    dark.page.locator(".theme").click()
    dark.settle()
    assert theme(dark) == "light"
    assert dark.page.evaluate(background) != before
    assert dark.figure("accuracy", line) != colour
    dark.page.locator(".theme").click()
    dark.settle()
    assert (theme(dark), dark.figure("accuracy", line)) == ("dark", colour)
    assert dark.complaints == []


def test_on_paper_the_page_is_light_and_complete(dark: Visit) -> None:
    dark.page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert theme(dark) == "light"
    assert dark.page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    dark.page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert theme(dark) == "dark"
    assert len(dark.page.pdf()) > 50_000
    assert dark.complaints == []


def test_on_a_phone_nothing_is_wider_than_the_screen(dark: Visit) -> None:
    dark.page.set_viewport_size({"width": 390, "height": 844})
    dark.settle()
    dark.page.wait_for_selector("#figure-accuracy .legend .traces")
    assert dark.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert dark.complaints == []


def test_a_strategy_called_script_shows_as_text(
    browser: Browser, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    name = '<script>alert("x")</script>'
    folder = make_run(
        name=f"<b>{name}",
        strategies=[{"kind": "fdms", "name": name}, {"kind": "dropout", "name": "<img src=x>"}],
    )
    opened = visit(browser, write_report(folder, tmp_path / "report.html"))
    assert opened.complaints == []
    assert opened.page.locator("h1").text_content() == f"<b>{name}"
    labels = opened.page.locator("#figure-accuracy .annotation-text").all_text_contents()
    assert sum(name in label for label in labels) == 1
    assert sum("<img src=x>" in label for label in labels) == 1
    rows = opened.page.locator("#table-comparison tbody th").all_text_contents()
    assert rows == [name, "<img src=x>"]


@pytest.mark.slow
def test_a_thousand_clients_open_quickly(browser: Browser, large: Path, tmp_path: Path) -> None:
    opened = visit(browser, write_report(large, tmp_path / "report.html"))
    assert opened.complaints == []
    drawn, total = opened.page.evaluate("[fdsimReport.drawn, fdsimReport.total]")
    assert drawn == total
