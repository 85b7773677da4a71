"""The report's colours can be told apart, in the light and in the dark, with every kind of colour vision."""

from __future__ import annotations

import numpy as np
import pytest

from fdsim.report.colours import (
    CAUSES_DARK,
    CAUSES_LIGHT,
    STRATEGIES_DARK,
    STRATEGIES_LIGHT,
    palettes,
    strategy_looks,
)
from fdsim.trace import Cause

#: How dichromats see linear RGB, after Machado, Oliveira and Fernandes (2009), severity 1.
VISIONS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colours: list[str]) -> np.ndarray:
    """sRGB hex codes as linear light, [n, 3]."""
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def smallest_difference(colours: list[str], vision: str) -> float:
    """The smallest distance between two of the colours, in hundredths of OKLab."""
    seen = np.clip(linear(colours) @ VISIONS[vision].T, 0, 1)
    lab = 100 * np.cbrt(seen @ TO_LMS.T) @ TO_LAB.T
    distance = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return float(distance[np.triu_indices(len(lab), 1)].min())


def contrast(colour: str, surface: str) -> float:
    """The WCAG contrast of a colour on a surface."""
    light, dark = sorted(linear([colour, surface]) @ np.array([0.2126, 0.7152, 0.0722]), reverse=True)
    return float((light + 0.05) / (dark + 0.05))


SETS = {
    "causes, light": [*CAUSES_LIGHT.values(), palettes()["light"]["completed"]],
    "causes, dark": [*CAUSES_DARK.values(), palettes()["dark"]["completed"]],
    "strategies, light": list(STRATEGIES_LIGHT.values()),
    "strategies, dark": list(STRATEGIES_DARK.values()),
}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("name", SETS)
def test_any_two_colours_can_be_told_apart(name: str, vision: str) -> None:
    least = 15.0 if vision == "normal" else 8.9
    assert smallest_difference(SETS[name], vision) >= least


def test_two_like_colours_are_noticed() -> None:
    """The measure itself: red and green of like lightness are far apart, but not for a deutan."""
    pair = ["#b4713d", "#6f8f3d"]
    assert smallest_difference(pair, "normal") > 2 * smallest_difference(pair, "deutan")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_the_page(theme: str) -> None:
    palette = palettes()[theme]
    assert contrast(palette["ink"], palette["surface"]) >= 12
    assert contrast(palette["soft"], palette["surface"]) >= 4.5
    strategies = STRATEGIES_LIGHT if theme == "light" else STRATEGIES_DARK
    for colour in [*strategies.values(), *(palette[cause.name] for cause in Cause)]:
        assert contrast(colour, palette["surface"]) >= 1.8


def test_every_cause_has_its_own_colour_in_both_themes() -> None:
    names = {cause.name for cause in Cause}
    assert set(CAUSES_LIGHT) == set(CAUSES_DARK) == names
    assert palettes()["light"].keys() == palettes()["dark"].keys()


def test_a_kind_keeps_its_colour_whatever_stands_beside_it() -> None:
    alone = strategy_looks(["fdms"], ["fdms"])
    among = strategy_looks(["mine", "stale", "fdms"], ["my_models:Mine", "stale", "fdms"])
    assert alone["fdms"] == among["fdms"] == ("@fdms", "solid")


@pytest.mark.parametrize("kinds", [["fdms"] * 20, [*STRATEGIES_LIGHT, *["stale"] * 5], ["my:Own"] * 30])
def test_many_strategies_all_look_different(kinds: list[str]) -> None:
    labels = [f"variant {i}" for i in range(len(kinds))]
    looks = strategy_looks(labels, kinds)
    assert len(set(looks.values())) == len({dash for _, dash in looks.values()}) == len(labels)
    assert list(looks) == labels


@pytest.mark.parametrize(
    "kinds", [["fdms"] * 9, ["full", "fdms", "dropout", *["stale"] * 4, "zero", "my:Own"]]
)
def test_nine_lines_differ_in_colour_and_in_dash(kinds: list[str]) -> None:
    looks = strategy_looks([f"variant {i}" for i in range(9)], kinds)
    colours = [STRATEGIES_LIGHT[token[1:]] for token, _ in looks.values()]
    assert len({dash for _, dash in looks.values()}) == 9
    assert smallest_difference(colours, "deutan") >= 8.9
