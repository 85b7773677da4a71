"""The parts of a page: sections of figures, tables and remarks, as plain records."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """What the reader must know, such as which clients are shown if not all."""
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
    case: str = ""
    """The case of a study that it is about: shown only while the reader looks at that case."""


@dataclass(frozen=True)
class Remark:
    """A sentence in place of a figure that cannot be drawn, saying why."""

    title: str
    says: str


@dataclass(frozen=True)
class Listing:
    """A long collapsible text, such as a scenario file, with facts above it."""

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
    fractions: Sequence[tuple[str, float, str]] = ()
    """(name, fraction, colour token) of each part of a bar under the number."""


@dataclass(frozen=True)
class Page:
    """A report before it is rendered as HTML."""

    title: str
    subtitle: str
    status: str
    """Empty when the run is complete, else what is missing."""
    finding: str
    results: Sequence[Tile]
    """Results, one tile per strategy."""
    costs: Sequence[Tile]
    """Dropout, simulated time and energy."""
    sections: Sequence[Section]


def plot_text(text: object) -> str:
    """Escape a text for a figure; plotly would interpret tags in it."""
    return html.escape(str(text), quote=False)


def packed(values: np.ndarray, kind: str) -> dict[str, Any]:
    """Pack numbers for the page: `kind` is u1, u2, i4 or f4; a [rows, columns] array keeps its shape."""
    array = np.ascontiguousarray(values, dtype=np.dtype(f"<{kind}"))
    return {
        "kind": kind,
        "shape": list(array.shape),
        "bytes": base64.b64encode(array.tobytes()).decode("ascii"),
    }


def unpacked(pack: Mapping[str, Any]) -> np.ndarray:
    """Return the numbers that `packed` packed."""
    found = np.frombuffer(base64.b64decode(pack["bytes"]), dtype=np.dtype(f"<{pack['kind']}"))
    return found.reshape(pack["shape"])


def rounded(values: Any, digits: int = 5) -> list[float | None]:
    """Round numbers to `digits` significant digits for JSON; NaN becomes null."""
    return [
        None if not np.isfinite(v) else float(f"{v:.{digits}g}") for v in np.asarray(values, dtype=np.float64)
    ]


def evenly(count: int, most: int) -> np.ndarray:
    """Pick at most `most` of `count` positions, evenly spaced, the first and the last among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
