"""The menu of kinds: family → short name → import path.

A kind is added with one line here; nothing else in the code base lists kinds.
"""

from __future__ import annotations

import difflib

#: family → import path of its base class.
BASES: dict[str, str] = {
    "battery": "fdsim.devices.models.battery:Battery",
    "connectivity": "fdsim.devices.models.connectivity:Connectivity",
    "usage": "fdsim.devices.models.usage:Usage",
    "compute": "fdsim.devices.models.compute:Compute",
    "selection": "fdsim.devices.models.selection:Selection",
    "participation": "fdsim.participation.base:Participation",
    "data": "fdsim.data.datasets:DataSource",
    "partition": "fdsim.data.partition:Partition",
    "net": "fdsim.learning.nets.library:Net",
    "optimiser": "fdsim.learning.server_optimisers:ServerOptimiser",
    "strategy": "fdsim.strategies.base:Strategy",
}

#: family → short name → import path.
MENU: dict[str, dict[str, str]] = {
    "battery": {
        "linear": "fdsim.devices.models.battery:Linear",
        "tapered": "fdsim.devices.models.battery:Tapered",
        "ageing": "fdsim.devices.models.battery:Ageing",
        "mains": "fdsim.devices.models.battery:Mains",
        "replay": "fdsim.devices.models.replay:ReplayBattery",
    },
    "connectivity": {
        "always_on": "fdsim.devices.models.connectivity:AlwaysOn",
        "on_off": "fdsim.devices.models.connectivity:OnOff",
        "mobile": "fdsim.devices.models.connectivity:Mobile",
        "home_wifi": "fdsim.devices.models.connectivity:HomeWifi",
        "places": "fdsim.devices.models.places:Places",
        "replay": "fdsim.devices.models.replay:ReplayLink",
    },
    "usage": {
        "unattended": "fdsim.devices.models.usage:Unattended",
        "spells": "fdsim.devices.models.usage:Spells",
        "hourly": "fdsim.devices.models.usage_hours:Hourly",
        "nightly": "fdsim.devices.models.usage_hours:Nightly",
        "habits": "fdsim.devices.models.usage_habits:HabitUsage",
        "replay": "fdsim.devices.models.replay:ReplayUsage",
    },
    "compute": {
        "flops": "fdsim.devices.models.compute:Flops",
        "per_sample": "fdsim.devices.models.compute:PerSample",
    },
    "selection": {
        "all": "fdsim.devices.models.selection:All",
        "random": "fdsim.devices.models.selection:Random",
    },
    "participation": {
        "fixed_ratio": "fdsim.participation.fixed_ratio:FixedRatio",
        "bernoulli": "fdsim.participation.simple:Bernoulli",
        "markov": "fdsim.participation.simple:Markov",
        "periodic": "fdsim.participation.simple:Periodic",
        "scripted": "fdsim.participation.simple:Scripted",
        "trace": "fdsim.participation.replayed:Replayed",
    },
    "data": {
        "digits": "fdsim.data.datasets:Digits",
        "synthetic": "fdsim.data.datasets:Synthetic",
        "mnist": "fdsim.data.vision:Mnist",
        "fashion_mnist": "fdsim.data.vision:FashionMnist",
        "cifar10": "fdsim.data.vision:Cifar10",
        "cifar100": "fdsim.data.vision:Cifar100",
        "parquet": "fdsim.data.parquet:ParquetImages",
    },
    "partition": {
        "clustered": "fdsim.data.partition:Clustered",
        "shards": "fdsim.data.partition:Shards",
        "dirichlet": "fdsim.data.partition:Dirichlet",
        "iid": "fdsim.data.partition:Iid",
        "quantity_skew": "fdsim.data.partition:QuantitySkew",
        "by_file": "fdsim.data.partition:ByFile",
    },
    "net": {
        "mlp": "fdsim.learning.nets.library:Mlp",
        "mnist_cnn": "fdsim.learning.nets.library:MnistCnn",
        "cifar_cnn": "fdsim.learning.nets.library:CifarCnn",
        "pfl_cnn": "fdsim.learning.nets.library:PflCnn",
        "depthwise_cnn": "fdsim.learning.nets.library:DepthwiseCnn",
        "resnet": "fdsim.learning.nets.library:ResNet",
        "module": "fdsim.learning.nets.module_net:ModuleNet",
    },
    "optimiser": {
        "plain": "fdsim.learning.server_optimisers:Plain",
        "momentum": "fdsim.learning.server_optimisers:Momentum",
        "fedadam": "fdsim.learning.server_optimisers:FedAdam",
        "fedyogi": "fdsim.learning.server_optimisers:FedYogi",
        "fedadagrad": "fdsim.learning.server_optimisers:FedAdagrad",
    },
    "strategy": {
        "full": "fdsim.strategies.full:Full",
        "dropout": "fdsim.strategies.dropout:Dropout",
        "zero": "fdsim.strategies.zero:Zero",
        "stale": "fdsim.strategies.stale:Stale",
        "fdms": "fdsim.strategies.fdms:Fdms",
        "fdms_memory": "fdsim.strategies.fdms_memory:FdmsMemory",
        "oracle_friends": "fdsim.strategies.oracle_friends:OracleFriends",
        "fedvarp": "fdsim.strategies.fedvarp:FedVarp",
    },
}


def nearest(word: str, names: list[str]) -> str:
    """Return "(did you mean …?)" with the closest name, or the choices when none is close."""
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" (did you mean '{close[0]}'?)"
    return f" (there is: {', '.join(sorted(names))})" if names else ""
