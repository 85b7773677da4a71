"""fdsim: federated learning on devices that drop out.

    import fdsim

    run = fdsim.run("scenarios/quickstart.toml")   # a file, TOML text, a dict or a Scenario
    run.summary()                                  # one line per strategy
    run.plot("accuracy")                           # the report's figures
    run.rounds, run.clients, run.trace             # pandas tables
    run.model("fdms")                              # the global model, an nn.Module

A class of one's own derives from a family's base (Strategy, Battery, Connectivity, Usage, Compute, Selection,
Participation, DataSource, Partition, Net, ServerOptimiser); a scenario names it as "module:Class".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdsim.api.running import make_trace, run, run_study
    from fdsim.data.datasets import DataSource, Examples
    from fdsim.data.partition import Division, Partition
    from fdsim.devices.models.battery import Battery
    from fdsim.devices.models.compute import Compute
    from fdsim.devices.models.connectivity import Connectivity, Spell
    from fdsim.devices.models.selection import Selection
    from fdsim.devices.models.usage import Usage
    from fdsim.learning.nets.library import Net
    from fdsim.learning.server_optimisers import ServerOptimiser
    from fdsim.participation.base import Participation
    from fdsim.scenario import Scenario, load_scenario
    from fdsim.strategies.base import Blend, Cohort, Federation, Feedback, Strategy
    from fdsim.telemetry.callback import Callback
    from fdsim.telemetry.reader import Run, open_run
    from fdsim.telemetry.study_reader import Study, open_study
    from fdsim.telemetry.tensorboard import TensorBoard
    from fdsim.trace import Trace, open_trace

__version__ = "0.1.0"

#: The modules of the public names, imported on first use so that `import fdsim` stays light.
_PUBLIC = {
    "Battery": "fdsim.devices.models.battery",
    "Blend": "fdsim.strategies.base",
    "Callback": "fdsim.telemetry.callback",
    "Cohort": "fdsim.strategies.base",
    "Compute": "fdsim.devices.models.compute",
    "Connectivity": "fdsim.devices.models.connectivity",
    "DataSource": "fdsim.data.datasets",
    "Division": "fdsim.data.partition",
    "Examples": "fdsim.data.datasets",
    "Federation": "fdsim.strategies.base",
    "Feedback": "fdsim.strategies.base",
    "Net": "fdsim.learning.nets.library",
    "Participation": "fdsim.participation.base",
    "Partition": "fdsim.data.partition",
    "Run": "fdsim.telemetry.reader",
    "Scenario": "fdsim.scenario",
    "Selection": "fdsim.devices.models.selection",
    "ServerOptimiser": "fdsim.learning.server_optimisers",
    "Spell": "fdsim.devices.models.connectivity",
    "Strategy": "fdsim.strategies.base",
    "Study": "fdsim.telemetry.study_reader",
    "TensorBoard": "fdsim.telemetry.tensorboard",
    "Trace": "fdsim.trace",
    "Usage": "fdsim.devices.models.usage",
    "load_scenario": "fdsim.scenario",
    "make_trace": "fdsim.api.running",
    "open_run": "fdsim.telemetry.reader",
    "open_study": "fdsim.telemetry.study_reader",
    "open_trace": "fdsim.trace",
    "run": "fdsim.api.running",
    "run_study": "fdsim.api.running",
}

__all__ = [
    "Battery",
    "Blend",
    "Callback",
    "Cohort",
    "Compute",
    "Connectivity",
    "DataSource",
    "Division",
    "Examples",
    "Federation",
    "Feedback",
    "Net",
    "Participation",
    "Partition",
    "Run",
    "Scenario",
    "Selection",
    "ServerOptimiser",
    "Spell",
    "Strategy",
    "Study",
    "TensorBoard",
    "Trace",
    "Usage",
    "__version__",
    "load_scenario",
    "make_trace",
    "open_run",
    "open_study",
    "open_trace",
    "run",
    "run_study",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fdsim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})
