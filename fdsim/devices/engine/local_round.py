"""A local round on the world's clock: download → train → upload, raced against everything that can end it.

The race is one loop: the device works at a constant rate until the earliest of {the phase is done, something
about the device changes, it throttles, the deadline}. When several fall on the same instant, the order is:
work that is done counts; then a lapse of eligibility; then the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.eligible import obstacle
from fdsim.trace import NONE, Cause, Network, Phase

INF = math.inf
#: What a local round is interrupted with when the server closes the round without it.
ROUND_CLOSED = "round closed"
#: Two instants closer than this are one: a nanosecond absorbs the rounding of now + (then − now).
SAME_S = 1e-9
#: These lose the work whatever `on_lapse` says.
FATAL = (Cause.crashed, Cause.battery_empty)

# Members bound once, here and in other modules: looking one up in its enum costs more than comparing it.
_CHECK_IN, _DOWNLOAD, _TRAIN, _UPLOAD = Phase
_CELLULAR, _DEADLINE = Network.cellular, Cause.deadline
WORKING = (_DOWNLOAD, _TRAIN, _UPLOAD)


@dataclass(frozen=True)
class RoundRequest:
    """What the server asks of every device that it has selected for a round."""

    round_index: int
    start_s: float
    deadline_s: float
    """The simulated time at which it is too late."""
    bytes_down: int
    bytes_up: int
    pause_on_lapse: bool


@dataclass(slots=True)
class LocalRoundResult:
    """What became of a device in a round: its row of the trace."""

    start_s: float
    soc_start: float
    network: int
    end_s: float = 0.0
    soc_end: float = 0.0
    cause: int = NONE
    phase: int = int(_CHECK_IN)
    progress: float = 0.0
    download_s: float = math.nan
    train_s: float = math.nan
    upload_s: float = math.nan
    energy_j: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0


Report = Callable[[int, LocalRoundResult], None]


def delay_s(now_s: float, then_s: float) -> float:
    """Return the delay that brings a clock from now to then, to the last bit wherever there is such a delay."""
    wait_s = then_s - now_s
    if now_s + wait_s == then_s:
        return max(0.0, wait_s)
    other_s = math.nextafter(wait_s, INF if now_s + wait_s < then_s else 0.0)
    return max(0.0, other_s if now_s + other_s == then_s else wait_s)


class LocalRound:
    """The round of one device that has checked in."""

    __slots__ = ("_cell", "_device", "_env", "_hot_s", "_now_s", "_request", "_result")

    def __init__(
        self, env: simpy.Environment, device: Device, request: RoundRequest, result: LocalRoundResult
    ) -> None:
        self._env, self._device, self._request, self._result = env, device, request, result
        self._now_s = float(env.now)
        self._cell = device.cell_here(self._now_s)
        #: How long the device has been training, which decides when it throttles.
        self._hot_s = 0.0

    def run(self, report: Report) -> Generator[simpy.Event, Any, None]:
        """Work through one phase after the other until one of them fails; fill in the result and report it."""
        device, request, result = self._device, self._request, self._result
        cause: Cause | None = None
        for phase, whole in zip(
            WORKING, (8.0 * request.bytes_down, device.work, 8.0 * request.bytes_up), strict=True
        ):
            result.phase, start_s = phase, self._now_s
            device.note(phase.name, float(request.round_index))
            cell = self._cell if phase is not _TRAIN else None
            process = self._env.active_process
            if cell is not None and process is not None:
                cell.join(phase, process)
            left, cause = yield from self._race(phase, whole)
            if cell is not None and process is not None:
                cell.leave(phase, process)
            done_frac = 1.0 - left / whole if whole else float(cause is None)
            _record_phase(result, phase, self._now_s - start_s, done_frac, request)
            if cause is not None:
                break
        device.work_at(0.0)
        device.rested()
        result.end_s, result.soc_end = self._now_s, device.soc
        result.cause = NONE if cause is None else cause
        if cause is None:
            device.note("completed", float(request.round_index))
        else:
            device.note("dropped", float(cause))
        report(device.client, result)

    def _race(self, phase: Phase, left: float) -> Generator[simpy.Event, Any, tuple[float, Cause | None]]:
        """Work until a phase is done or something ends the round; return (what is left to do, the cause or None).

        `left` is in bits of a transfer or in the compute model's unit of work.
        """
        env, device, request, deadline_s = self._env, self._device, self._request, self._request.deadline_s
        link, shake_s, seen = device.surroundings.link, handshake_s(device, phase), -1
        lapse: Cause | None = None
        while True:
            now_s = self._now_s
            if device.changes != seen:
                seen, lapse = device.changes, obstacle(device, phase)
                if request.pause_on_lapse:
                    device.rest()
                if lapse is not None and (not request.pause_on_lapse or lapse in FATAL):
                    return left, lapse
            if now_s >= deadline_s - SAME_S:
                # A device that is still paused at the deadline failed for what it was paused for.
                return left, _DEADLINE if lapse is None else lapse
            rate, steady_s, power_w = (0.0, INF, 0.0) if lapse is not None else self._pace(phase)
            device.work_at(power_w, deadline_s)
            done_s = now_s + shake_s + left / rate if rate > 0.0 else INF
            then_s, closed = min(done_s, device.next_s, now_s + steady_s, deadline_s), False
            try:
                yield env.timeout(delay_s(env.now, then_s))
            except simpy.Interrupt as interrupt:
                then_s, closed = env.now, interrupt.cause is ROUND_CLOSED
            elapsed_s, self._now_s = then_s - now_s, then_s
            device.advance(then_s)
            if lapse is None:
                self._result.energy_j += work_energy_j(device, power_w, elapsed_s)
                if phase is _TRAIN:
                    self._hot_s += elapsed_s
                if then_s >= done_s - SAME_S:
                    return 0.0, _DEADLINE if closed and phase is not _UPLOAD else None
                shaken_s = min(shake_s, elapsed_s)
                shake_s -= shaken_s
                left = max(0.0, left - rate * (elapsed_s - shaken_s))
            if closed:
                return left, _DEADLINE
            if device.surroundings.link is not link:
                # A new session starts with new round trips.
                link, shake_s = device.surroundings.link, handshake_s(device, phase)

    def _pace(self, phase: Phase) -> tuple[float, float, float]:
        """Return (rate of work, seconds until the device throttles, power that the work adds in W)."""
        device = self._device
        power_w = phase_powers_w(device)[phase - _DOWNLOAD]
        if phase is not _TRAIN:
            bps = device.surroundings.link.down_bps if phase is _DOWNLOAD else device.surroundings.link.up_bps
            return bps if self._cell is None else min(bps, self._cell.portion_bps(phase)), INF, power_w
        rate, steady_s = training_rate(device, self._hot_s)
        if self._now_s + steady_s == self._now_s:
            # Too little for the clock to move by: the device throttles now.
            self._hot_s += SAME_S
            rate, steady_s = training_rate(device, self._hot_s)
        return rate, steady_s, power_w


def handshake_s(device: Device, phase: Phase) -> float:
    """Return the time of a transfer's round trips before its first byte."""
    return 0.0 if phase is _TRAIN else device.group.handshakes * device.surroundings.link.rtt_s


def training_rate(device: Device, hot_s: float) -> tuple[float, float]:
    """Return (work per second after `hot_s` of training, seconds until the device throttles)."""
    compute = device.group.compute
    pace, steady_s = compute.pace(hot_s)
    screen = 1.0 - compute.screen_load_frac if device.surroundings.screen_on else 1.0
    return device.speed * pace * screen * device.free_frac, steady_s


def phase_powers_w(device: Device) -> tuple[float, float, float]:
    """Return what download, training and upload add to the load on the present network, W."""
    radio, train_w = device.group.radio, device.power.train_w
    if device.surroundings.link.network is _CELLULAR:
        return radio.cellular_rx_w, train_w, radio.cellular_tx_w
    return radio.wifi_rx_w, train_w, radio.wifi_tx_w


def work_energy_j(device: Device, power_w: float, time_s: float) -> float:
    """Return the energy that a round is charged for some time of work: its own and the idle power, not the screen's."""
    return time_s * (power_w + device.power.idle_w)


def _record_phase(
    result: LocalRoundResult, phase: Phase, time_s: float, done_frac: float, request: RoundRequest
) -> None:
    if phase is _DOWNLOAD:
        result.download_s, result.bytes_down = time_s, round(request.bytes_down * done_frac)
    elif phase is _TRAIN:
        result.train_s, result.progress = time_s, done_frac
    else:
        result.upload_s, result.bytes_up = time_s, round(request.bytes_up * done_frac)
