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

from fdsim.devices.device import Device
from fdsim.devices.share import SHARE_CHANGED, SharedCell
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
_CELLULAR, _DEADLINE = Network.cellular, Cause.deadline


@dataclass(frozen=True)
class Job:
    """What the server asks of every device it has selected for a round."""

    round_index: int
    deadline_s: float
    """The simulated time at which it is too late."""
    bytes_down: int
    bytes_up: int
    pause_on_lapse: bool


@dataclass(slots=True)
class Answer:
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


def check_in(device: Device, now_s: float) -> Answer:
    """Begins the answer, and ends it at once if the device is not eligible; takes no time."""
    device.advance(now_s)
    network = device.link.network if device.online else Network.none
    answer = Answer(now_s, device.soc, int(network))
    cause = device.obstacle(_CHECK_IN)
    if cause is not None:
        answer.cause, answer.end_s, answer.soc_end = int(cause), now_s, answer.soc_start
    return answer


class Track(NamedTuple):
    """Where a race is run: the clock, the device, the cell it shares (if any), and the process that runs."""

    env: simpy.Environment
    device: Device
    cell: SharedCell | None
    process: simpy.Process


def race(track: Track, job: Job, work: float, answer: Answer) -> Generator[simpy.Event, Any, None]:
    """Runs the phases one after the other until one of them fails, and writes down what became of them.

    `work` is the training, in the unit of the device's compute law. `left` is what is left of a phase: bits
    of a transfer, work of the training.
    """
    env, device, cell, process = track
    group, deadline_s = device.group, job.deadline_s
    free_frac = 1.0 - group.compute.load(device.rng)
    idle_w, hot_s, now_s = group.power.idle_w, 0.0, env.now
    cause: Cause | None = None
    for phase, whole in ((_DOWNLOAD, 8.0 * job.bytes_down), (_TRAIN, work), (_UPLOAD, 8.0 * job.bytes_up)):
        answer.phase = int(phase)
        device.note(phase.name, float(job.round_index))
        shared = cell if phase is not _TRAIN else None
        if shared is not None:
            shared.join(phase, process)
        start_s, left, link, seen = now_s, whole, device.link, -1
        handshake_s = _handshake_s(device, phase)
        lapse: Cause | None = None
        while True:
            if device.changes != seen:
                seen, lapse = device.changes, device.obstacle(phase)
                if lapse is not None and (not job.pause_on_lapse or lapse in FATAL):
                    cause = lapse
                    break
            if now_s >= deadline_s - SAME_S:
                # A device that is still paused at the deadline failed for what it was paused for.
                cause = _DEADLINE if lapse is None else lapse
                break
            if lapse is None:
                rate, steady_s = (
                    _training_rate(device, hot_s) if phase is _TRAIN else _transfer_rate(device, phase, cell)
                )
                rate = rate * free_frac if phase is _TRAIN else rate
                power_w = _power_w(device, phase)
            else:
                rate, steady_s, power_w = 0.0, INF, 0.0
            device.work_at(power_w)
            done_s = now_s + handshake_s + left / rate if rate > 0.0 else INF
            try:
                yield env.timeout(min(done_s, device.next_s, now_s + steady_s, deadline_s) - now_s)
                closed = False
            except simpy.Interrupt as interrupt:
                closed = interrupt.cause is not SHARE_CHANGED
            elapsed_s = env.now - now_s
            now_s = env.now
            device.advance(now_s)
            if lapse is None:
                answer.energy_j += elapsed_s * (power_w + idle_w)
                if now_s >= done_s - SAME_S:
                    left = 0.0
                    break
                if phase is _TRAIN:
                    hot_s += elapsed_s
                shaken_s = min(handshake_s, elapsed_s)
                handshake_s -= shaken_s
                left = max(0.0, left - rate * (elapsed_s - shaken_s))
            if closed:
                cause = _DEADLINE
                break
            if device.link is not link:
                # A new session starts with new round trips.
                link, handshake_s = device.link, _handshake_s(device, phase)
        if shared is not None:
            shared.leave(phase, process)
        _write_down(
            answer, phase, now_s - start_s, 1.0 - left / whole if whole else float(cause is None), job
        )
        if cause is not None:
            break
    device.work_at(0.0)
    answer.end_s, answer.soc_end = now_s, device.soc
    answer.cause = NONE if cause is None else int(cause)
    device.note(
        "completed" if cause is None else "dropped", float(job.round_index if cause is None else cause)
    )


def _handshake_s(device: Device, phase: Phase) -> float:
    return 0.0 if phase is _TRAIN else device.group.handshakes * device.link.rtt_s


def _training_rate(device: Device, hot_s: float) -> tuple[float, float]:
    """Answers with (work per second of an otherwise idle processor, seconds until the device throttles)."""
    compute = device.group.compute
    pace, steady_s = compute.pace(hot_s)
    screen = 1.0 - compute.screen_load_frac if device.screen_on else 1.0
    return device.speed * pace * screen, steady_s


def _transfer_rate(device: Device, phase: Phase, cell: SharedCell | None) -> tuple[float, float]:
    bps = device.link.down_bps if phase is _DOWNLOAD else device.link.up_bps
    return (bps if cell is None else min(bps, cell.share_bps(phase))), INF


def _power_w(device: Device, phase: Phase) -> float:
    if phase is _TRAIN:
        return device.group.power.train_w
    radio = device.group.radio
    if device.link.network is _CELLULAR:
        return radio.cellular_rx_w if phase is _DOWNLOAD else radio.cellular_tx_w
    return radio.wifi_rx_w if phase is _DOWNLOAD else radio.wifi_tx_w


def _write_down(answer: Answer, phase: Phase, time_s: float, done_frac: float, job: Job) -> None:
    if phase is _DOWNLOAD:
        answer.download_s, answer.bytes_down = time_s, round(job.bytes_down * done_frac)
    elif phase is _TRAIN:
        answer.train_s, answer.progress = time_s, done_frac
    else:
        answer.upload_s, answer.bytes_up = time_s, round(job.bytes_up * done_frac)
