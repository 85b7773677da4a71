"""What the page is made of: sections of figures, tables and remarks, as plain records."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Figure:
    """One figure: what it shows in a sentence, and what the page's script draws it from.

    `builder` names the function in assets/ that turns `payload` into traces, layout and the CSV table.
    """

    key: str
    title: str
    says: str
    builder: str
    payload: Mapping[str, Any]
    remark: str = ""
    """A rule the reader must know, such as which clients are shown when not all are."""
    height_px: int = 380


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column is a heading, `swatches` are the rows' colour tokens."""

    key: str
    title: str
    says: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    swatches: Sequence[str] = ()
    remark: str = ""
    prose: bool = False
    """The last column holds sentences rather than numbers."""


@dataclass(frozen=True)
class Remark:
    """A sentence in the place of a figure that cannot be drawn, saying why not."""

    title: str
    says: str


@dataclass(frozen=True)
class Listing:
    """A long text to open and close, such as a scenario file, with facts above it."""

    title: str
    says: str
    facts: Sequence[tuple[str, str]]
    text: str


@dataclass(frozen=True)
class Section:
    """A heading with one sentence, and its parts."""

    key: str
    title: str
    says: str
    parts: Sequence[Figure | Table | Remark | Listing]


@dataclass(frozen=True)
class Tile:
    """One number of the header, with what it means."""

    value: str
    caption: str
    detail: str = ""
    swatch: str = ""
    shares: Sequence[tuple[str, float, str]] = ()
    """(name, share, colour token) of a bar under the number."""


@dataclass(frozen=True)
class Page:
    """The whole report before it becomes HTML."""

    title: str
    subtitle: str
    status: str
    """Empty when the run is complete, else what is missing from it."""
    finding: str
    results: Sequence[Tile]
    """What came out, one tile per strategy."""
    costs: Sequence[Tile]
    """What went missing and what it took."""
    sections: Sequence[Section]
    links: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """(text, relative address) of other reports, for a study."""


def plot_text(text: object) -> str:
    """Escape a text for a figure, where plotly would otherwise read tags in it."""
    return html.escape(str(text), quote=False)


def packed(values: np.ndarray, kind: str) -> dict[str, Any]:
    """Pack numbers for the page: `kind` is u1, u2, i4 or f4; a [rows, columns] array keeps its shape."""
    array = np.ascontiguousarray(values, dtype=np.dtype(f"<{kind}"))
    return {
        "kind": kind,
        "shape": list(array.shape),
        "bytes": base64.b64encode(array.tobytes()).decode("ascii"),
    }


def rounded(values: Any, digits: int = 5) -> list[float | None]:
    """Turn numbers into JSON ones with so many significant digits; NaN becomes null."""
    return [
        None if not np.isfinite(v) else float(f"{v:.{digits}g}") for v in np.asarray(values, dtype=np.float64)
    ]


def evenly(count: int, most: int) -> np.ndarray:
    """Pick at most `most` of `count` positions, evenly spaced, the first and the last among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
