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
    # The page waits a moment for the window to come to rest before it draws again.
    for _ in range(200):
        dark.settle()
        if dark.page.evaluate("document.documentElement.scrollWidth") <= 390:
            break
        dark.page.wait_for_timeout(50)
    assert dark.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert dark.figure("accuracy", "d => d.layout.annotations.length") == 0
    assert dark.complaints == []


def test_words_beside_tabs_are_no_button(seen: Visit) -> None:
    """The words of a label would press its first button, whichever was chosen."""
    tabs = seen.page.locator("#figure-accuracy .control", has_text="over")
    tabs.locator("button", has_text="Simulated time").click()
    tabs.click(position={"x": 4, "y": 8})
    seen.settle()
    assert "(h)" in seen.figure("accuracy", "d => d.layout.xaxis.title.text")
    tabs.locator("button", has_text="Rounds").click()
    seen.settle()


def test_a_click_on_its_key_hides_a_line_and_brings_it_back(seen: Visit) -> None:
    names = "d => d.data.filter(t => t.name).map(t => t.name).join()"
    key = seen.page.locator("#figure-accuracy .key", has_text="dropout")
    assert seen.figure("accuracy", names) == "full,fdms,dropout,stale"
    key.click()
    seen.settle()
    assert seen.figure("accuracy", names) == "full,fdms,stale"
    assert key.get_attribute("aria-pressed") == "false"
    labels = seen.page.locator("#figure-accuracy .annotation-text").all_text_contents()
    assert not any("dropout" in label for label in labels)
    key.click()
    seen.settle()
    assert seen.figure("accuracy", names) == "full,fdms,dropout,stale"
    dashes = seen.figure("accuracy", "d => d.data.filter(t => t.name).map(t => t.line.dash)")
    assert len(set(dashes)) == 4


def test_late_rounds_fill_the_figure(seen: Visit) -> None:
    ranges = "d => [...d.layout.xaxis.range, ...d.layout.yaxis.range]"
    whole = seen.figure("accuracy", ranges)
    seen.page.locator("#figure-accuracy .tabs button", has_text="Last third").click()
    seen.settle()
    late = seen.figure("accuracy", ranges)
    assert late[0] == 5 > whole[0]
    assert late[3] - late[2] < whole[3] - whole[2]
    seen.page.locator("#figure-accuracy .tabs button", has_text="All rounds").click()
    seen.settle()
    assert seen.figure("accuracy", ranges) == whole


def test_nothing_covers_the_figures_and_a_zoom_can_be_undone(seen: Visit) -> None:
    assert seen.page.locator(".modebar-btn").count() == 0
    reset = seen.page.locator("#figure-accuracy .reset")
    assert not reset.is_visible()
    before = seen.figure("accuracy", "d => [...d._fullLayout.xaxis.range]")
    box = seen.page.locator("#figure-accuracy .plot .nsewdrag").first.bounding_box()
    assert box is not None
    seen.page.locator("#figure-accuracy .plot").scroll_into_view_if_needed()
    box = seen.page.locator("#figure-accuracy .plot .nsewdrag").first.bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    seen.page.mouse.up()
    reset.wait_for(state="visible")
    assert seen.figure("accuracy", "d => [...d._fullLayout.xaxis.range]") != before
    reset.click()
    seen.settle()
    assert seen.figure("accuracy", "d => [...d._fullLayout.xaxis.range]") == before
    assert not reset.is_visible()
    with seen.page.expect_download() as waiting:
        seen.page.locator("#figure-accuracy .png").click()
    assert waiting.value.suggested_filename == "tiny-accuracy.png"
    assert Path(waiting.value.path()).read_bytes()[:4] == b"\x89PNG"
    assert seen.complaints == []


def test_the_fleet_can_be_played(seen: Visit, tiny: Path) -> None:
    """The film runs to the last round and stops; a tile has the colour of what the trace says."""
    figure = seen.page.locator("#figure-fleet")
    states = "d => d.data[0].customdata.map(t => t.split('<br>')[1])"
    first = seen.figure("fleet", states)
    figure.locator(".play", has_text="Play").click()
    assert figure.locator(".play").text_content() == "Pause"
    figure.locator(".play", has_text="Play").wait_for()
    seen.settle()
    assert (figure.locator("output").text_content() or "").startswith("6, day ")
    trace = fdsim.open_run(tiny).trace.sort_values("client")
    for index, told in ((0, first), (5, seen.figure("fleet", states))):
        rows = trace[trace["round"] == index]
        expected = [
            "trained" if row.outcome == "completed" else str(row.cause).replace("_", " ")
            for row in rows.itertuples()
        ]
        assert [text.removesuffix(", plugged in") for text in told] == expected
    assert seen.complaints == []


def test_by_touch_on_a_phone(browser: Browser, report: Path) -> None:
    """Keys answer to a tap, tables are lists of lines, and nothing leaves the screen."""
    phone = visit(browser, report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    phone.page.locator("#figure-accuracy .key", has_text="stale").tap()
    phone.settle()
    names = phone.figure("accuracy", "d => d.data.filter(t => t.name).map(t => t.name).join()")
    assert names == "full,fdms,dropout"
    phone.page.locator("#figure-accuracy .tabs button", has_text="Last third").tap()
    phone.settle()
    assert phone.figure("accuracy", "d => d.layout.xaxis.range[0]") == 5
    inside = "() => [...document.querySelectorAll('#table-comparison td')].every(c => c.getBoundingClientRect().right <= 390)"
    assert phone.page.evaluate(inside)
    assert phone.complaints == []


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


@pytest.mark.parametrize(
    "context",
    [
        {"viewport": {"width": 1400, "height": 900}},
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    ],
    ids=["1400", "390 by touch"],
)
def test_a_study_on_a_screen_and_on_a_phone(
    browser: Browser, study: Path, tmp_path: Path, context: dict[str, Any]
) -> None:
    """One choice of the case moves all figures and tables, and no table is wider than its card."""
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    opened = visit(browser, write_report(folder), **context)
    assert opened.complaints == []
    drawn, total = opened.page.evaluate("[fdsimReport.drawn, fdsimReport.total]")
    assert drawn == total >= 4
    assert {Path(url).name.split("-")[0] for url in opened.requests if url.startswith("file:")} == {
        "report.html",
        "plotly",
    }
    width = context["viewport"]["width"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    shown = (
        "() => [...document.querySelectorAll('[data-case]')].filter(t => !t.hidden).map(t => t.dataset.case)"
    )
    assert set(opened.page.evaluate(shown)) == {"alpha = 0.3"}
    before = opened.figure("accuracy", "d => JSON.stringify(d.data.map(t => t.y))")
    opened.page.locator("nav .cases select").select_option("alpha = 0.6")
    opened.settle()
    assert set(opened.page.evaluate(shown)) == {"alpha = 0.6"}
    assert opened.figure("accuracy", "d => JSON.stringify(d.data.map(t => t.y))") != before
    assert opened.page.evaluate(
        "[...fdsimReport.figures.values()].every(f => (f.choice.case || 'alpha = 0.6') === 'alpha = 0.6')"
    )
    fits = "() => [...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth + 1)"
    assert opened.page.evaluate(fits)
    assert opened.complaints == []


def test_a_page_without_its_plotly_says_what_is_missing(
    browser: Browser, study: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    page = Path(shutil.copy(write_report(folder), tmp_path / "moved.html"))
    opened = visit(browser, page)
    assert "fdsim report FOLDER --out" in (
        opened.page.locator("#figure-accuracy .problem").text_content() or ""
    )
