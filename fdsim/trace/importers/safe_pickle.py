"""Read untrusted pickles of logs: plain values only, see `fdsim.data.plain_pickle`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from fdsim.data.plain_pickle import DAMAGED, PlainUnpickler
from fdsim.errors import TraceError


def load_plain_pickle(path: Path | str) -> Any:
    """Read a pickle of plain values; anything else is refused before it runs."""
    try:
        with open(path, "rb") as file:
            return PlainUnpickler(file).load()
    except OSError as error:
        raise TraceError(str(path), f"cannot be read ({error.strerror})") from None
    except pickle.UnpicklingError as error:
        raise TraceError(
            str(path),
            f"not a pickle of plain values: {error}",
            "only dicts, lists, numbers and text are allowed",
        ) from None
    except DAMAGED as error:
        raise TraceError(
            str(path), f"truncated or damaged pickle ({type(error).__name__}: {error})"
        ) from None
