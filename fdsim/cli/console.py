"""The console that verbs print to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from fdsim.errors import printable


class PlainConsole(Console):
    """A console to which names are names: no control character, no escape sequence and no markup in them takes effect.

    Names, messages and settings come from files that anybody may have made. What Rich itself puts around them, such as
    colours, is added later and stays.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False, **options})

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render with every control character of the text replaced."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
