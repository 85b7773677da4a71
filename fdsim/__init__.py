"""fdsim: federated learning on devices that drop out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdsim.telemetry.reader import Run, open_run
    from fdsim.telemetry.study_reader import Study, open_study

__version__ = "0.1.0"
__all__ = ["Run", "Study", "__version__", "open_run", "open_study"]

#: The modules of the public names, imported on first use so that `import fdsim` stays light.
_PUBLIC = {
    "Run": "fdsim.telemetry.reader",
    "Study": "fdsim.telemetry.study_reader",
    "open_run": "fdsim.telemetry.reader",
    "open_study": "fdsim.telemetry.study_reader",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fdsim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
