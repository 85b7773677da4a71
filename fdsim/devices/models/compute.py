"""Compute models: how long the local training takes. Stateless; the device owns its speed and its heat."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import Field

from fdsim.catalogue import Component
from fdsim.workload import NetCost

INF = math.inf


class Compute(Component):
    """A compute model. Work and speed may be in any unit, so long as work / speed is seconds."""

    family: ClassVar[str] = "compute"

    background_load_frac: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="mean fraction of the processor that other work takes, drawn for each round",
    )
    screen_load_frac: float = Field(
        default=0.3,
        ge=0,
        lt=1,
        description="fraction of the processor that the user takes while the screen is on",
    )

    @abstractmethod
    def speed(self, rng: np.random.Generator) -> float:
        """Draw one device's peak speed, in work per second."""

    @abstractmethod
    def work(self, cost: NetCost, samples: float) -> float:
        """Return the work of training on `samples` samples."""

    def pace(self, hot_s: float) -> tuple[float, float]:
        """Return (fraction of peak speed, seconds until that changes) after `hot_s` of sustained load."""
        return 1.0, INF

    def load(self, rng: np.random.Generator) -> float:
        """Draw the fraction of the processor that is busy with other things in one round."""
        return 2.0 * self.background_load_frac * rng.random() if self.background_load_frac else 0.0


class Flops(Compute):
    """Time from the net's operations: 3 × forward FLOPs × samples over the device's training rate."""

    gflops: float = Field(gt=0, le=1e6, description="median effective training rate on dense layers, GFLOP/s")
    gflops_ln_sd: float = Field(default=0.0, ge=0, le=3, description="spread between devices of ln(rate)")
    depthwise_factor: float = Field(
        default=0.18, gt=0, le=1, description="rate on depthwise layers over that on dense"
    )
    sustained_frac: float = Field(default=1.0, gt=0, le=1, description="rate left once the device is hot")
    throttle_after_s: float = Field(
        default=120.0, ge=0, description="sustained load before the device throttles, s"
    )

    def speed(self, rng: np.random.Generator) -> float:
        """Draw FLOP/s, lognormal between devices."""
        return self.gflops * 1e9 * math.exp(self.gflops_ln_sd * float(rng.standard_normal()))

    def work(self, cost: NetCost, samples: float) -> float:
        """Return operations, with depthwise ones counted as the dense ones that take as long."""
        dense, depthwise = 1.0 - cost.depthwise_frac, cost.depthwise_frac / self.depthwise_factor
        return 3.0 * cost.forward_flops * samples * (dense + depthwise)

    def pace(self, hot_s: float) -> tuple[float, float]:
        """Return full speed while cool, the sustained fraction from `throttle_after_s` on."""
        if hot_s < self.throttle_after_s:
            return 1.0, self.throttle_after_s - hot_s
        return self.sustained_frac, INF


class PerSample(Compute):
    """Measured milliseconds per sample, whatever the net, as device traces give them."""

    ms_per_sample: float = Field(gt=0, description="median time to train on one sample, ms")
    ln_sd: float = Field(default=0.0, ge=0, le=3, description="spread between devices of ln(time)")
    slow_frac: float = Field(
        default=0.0, ge=0, le=1, description="fraction of devices that are of a slow kind"
    )
    slow_ms_per_sample: float = Field(default=150.0, gt=0, description="their median time for one sample, ms")
    slow_ln_sd: float = Field(default=0.0, ge=0, le=3, description="spread between them of ln(time)")

    def speed(self, rng: np.random.Generator) -> float:
        """Draw samples per second, lognormal between devices of either kind."""
        median_ms, ln_sd = self.ms_per_sample, self.ln_sd
        if self.slow_frac > 0.0 and rng.random() < self.slow_frac:
            median_ms, ln_sd = self.slow_ms_per_sample, self.slow_ln_sd
        return 1e3 / (median_ms * math.exp(ln_sd * float(rng.standard_normal())))

    def work(self, cost: NetCost, samples: float) -> float:
        """Return the samples themselves."""
        return samples
