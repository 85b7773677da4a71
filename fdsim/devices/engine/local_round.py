"""A local round: check in → download → train → upload, raced against everything that can end it.

The race is one loop: the device works at a constant rate until the earliest of {the phase is done, something
about the device changes, it throttles, the deadline}. When several fall on the same instant, the order is:
work that is done counts; then a lapse of eligibility; then the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import simpy

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.shared_cell import SHARE_CHANGED, SharedCell
from fdsim.trace import NONE, Cause, Network, Phase

INF = math.inf
#: What a process is interrupted with when the server closes the round without it.
ROUND_CLOSED = "round closed"
#: Two instants closer than this are one: a nanosecond absorbs the rounding of now + (then − now).
SAME_S = 1e-9
#: These lose the work whatever the policy says.
FATAL = (Cause.crashed, Cause.battery_empty)

# Looking a member up in its enum costs more than comparing it.
_CHECK_IN, _DOWNLOAD, _TRAIN, _UPLOAD = Phase
WORKING = (_DOWNLOAD, _TRAIN, _UPLOAD)
_CELLULAR, _NO_NETWORK, _DEADLINE = Network.cellular, Network.none, Cause.deadline


@dataclass(frozen=True)
class RoundRequest:
    """What the server asks of every device it has selected for a round."""

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


class Track(NamedTuple):
    """Where a race is run: the clock, the device, the cell it shares (if any), and the process that runs."""

    env: simpy.Environment
    device: Device
    cell: SharedCell | None
    process: simpy.Process


def delay_s(now_s: float, then_s: float) -> float:
    """The delay that brings a clock from now to then, to the last bit wherever there is such a delay."""
    wait_s = then_s - now_s
    if now_s + wait_s == then_s:
        return max(0.0, wait_s)
    other_s = math.nextafter(wait_s, INF if now_s + wait_s < then_s else 0.0)
    return max(0.0, other_s if now_s + other_s == then_s else wait_s)


def race(
    track: Track, request: RoundRequest, work: float, result: LocalRoundResult, free_frac: float
) -> Generator[simpy.Event, Any, None]:
    """Run a device through its round, one phase after the other until one of them fails.

    `work` is the training, in the unit of the device's compute law, of which `free_frac` of the processor is left
    for it. What became of the round is written into `result`.
    `left` is what is left of a phase: bits of a transfer, work of the training.
    """
    env, device, cell, process = track
    group, deadline_s = device.group, request.deadline_s
    idle_w, hot_s, now_s = group.power.idle_w, 0.0, env.now
    cause: Cause | None = None
    for phase, whole in zip(WORKING, (8.0 * request.bytes_down, work, 8.0 * request.bytes_up), strict=True):
        result.phase = phase
        device.note(phase.name, float(request.round_index))
        shared = cell if phase is not _TRAIN else None
        if shared is not None:
            shared.join(phase, process)
        start_s, left, link, seen = now_s, whole, device.link, -1
        shake_s = handshake_s(device, phase)
        lapse: Cause | None = None
        while True:
            if device.changes != seen:
                seen, lapse = device.changes, device.obstacle(phase)
                if lapse is not None and (not request.pause_on_lapse or lapse in FATAL):
                    cause = lapse
                    break
            if now_s >= deadline_s - SAME_S:
                # A device that is still paused at the deadline failed for what it was paused for.
                cause = _DEADLINE if lapse is None else lapse
                break
            rate, steady_s, power_w = 0.0, INF, 0.0
            if lapse is None:
                power_w = phase_powers_w(device)[phase - _DOWNLOAD]
                if phase is _TRAIN:
                    rate, steady_s = training_rate(device, hot_s)
                    if now_s + steady_s == now_s:
                        # Too little for the clock to move by: the device throttles now.
                        hot_s += SAME_S
                        rate, steady_s = training_rate(device, hot_s)
                    rate *= free_frac
                else:
                    rate = _transfer_rate(device, phase, cell)
            device.work_at(power_w, deadline_s)
            done_s = now_s + shake_s + left / rate if rate > 0.0 else INF
            then_s, closed = min(done_s, device.next_s, now_s + steady_s, deadline_s), False
            try:
                yield env.timeout(delay_s(env.now, then_s))
            except simpy.Interrupt as interrupt:
                then_s, closed = env.now, interrupt.cause is not SHARE_CHANGED
            elapsed_s, now_s = then_s - now_s, then_s
            device.advance(now_s)
            if lapse is None:
                result.energy_j += elapsed_s * (power_w + idle_w)
                if phase is _TRAIN:
                    hot_s += elapsed_s
                shaken_s = min(shake_s, elapsed_s)
                shake_s -= shaken_s
                left = 0.0 if now_s >= done_s - SAME_S else max(0.0, left - rate * (elapsed_s - shaken_s))
                if now_s >= done_s - SAME_S:
                    cause = _DEADLINE if closed and phase is not _UPLOAD else None
                    break
            if closed:
                cause = _DEADLINE
                break
            if device.link is not link:
                # A new session starts with new round trips.
                link, shake_s = device.link, handshake_s(device, phase)
        if shared is not None:
            shared.leave(phase, process)
        write_down(
            result, phase, now_s - start_s, 1.0 - left / whole if whole else float(cause is None), request
        )
        if cause is not None:
            break
    device.work_at(0.0)
    result.end_s, result.soc_end = now_s, device.charge_j / device.full_j
    result.cause = NONE if cause is None else cause
    device.note(
        "completed" if cause is None else "dropped", float(request.round_index if cause is None else cause)
    )


def handshake_s(device: Device, phase: Phase) -> float:
    return 0.0 if phase is _TRAIN else device.group.handshakes * device.link.rtt_s


def training_rate(device: Device, hot_s: float) -> tuple[float, float]:
    """Return (work per second of an otherwise idle processor, seconds until the device throttles)."""
    compute = device.group.compute
    pace, steady_s = compute.pace(hot_s)
    screen = 1.0 - compute.screen_load_frac if device.screen_on else 1.0
    return device.speed * pace * screen, steady_s


def _transfer_rate(device: Device, phase: Phase, cell: SharedCell | None) -> float:
    bps = device.link.down_bps if phase is _DOWNLOAD else device.link.up_bps
    return bps if cell is None else min(bps, cell.share_bps(phase))


def phase_powers_w(device: Device) -> tuple[float, float, float]:
    """What download, training and upload add to the load on the present network, W."""
    radio, train_w = device.group.radio, device.group.power.train_w
    if device.link.network is _CELLULAR:
        return radio.cellular_rx_w, train_w, radio.cellular_tx_w
    return radio.wifi_rx_w, train_w, radio.wifi_tx_w


def write_down(
    result: LocalRoundResult, phase: Phase, time_s: float, done_frac: float, request: RoundRequest
) -> None:
    if phase is _DOWNLOAD:
        result.download_s, result.bytes_down = time_s, round(request.bytes_down * done_frac)
    elif phase is _TRAIN:
        result.train_s, result.progress = time_s, done_frac
    else:
        result.upload_s, result.bytes_up = time_s, round(request.bytes_up * done_frac)
