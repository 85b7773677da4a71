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
_WORKING = (_DOWNLOAD, _TRAIN, _UPLOAD)
_CELLULAR, _NO_NETWORK, _DEADLINE = Network.cellular, Network.none, Cause.deadline


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
    """Begins the answer of a device, and ends it at once if the device is not eligible; takes no time."""
    device.advance(now_s)
    soc, cause = device.charge_j / device.full_j, device.obstacle(_CHECK_IN)
    network = device.link.network if cause is None or device.online else _NO_NETWORK
    if cause is None:
        return Answer(now_s, soc, network)
    return Answer(now_s, soc, network, now_s, soc, cause)


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


def race(track: Track, job: Job, work: float, answer: Answer) -> Generator[simpy.Event, Any, None]:
    """Runs a device through its round and writes down what became of it.

    `work` is the training, in the unit of the device's compute law. Where nothing can come in between, the
    whole round is one wait; whoever watches the device sees it go phase by phase, with the same result.
    """
    env, device, cell, _ = track
    free_frac = 1.0 - device.group.compute.load(device.rng)
    ends_s = None if cell is not None or device.watched else _calm_ends(device, job, work, free_frac)
    if ends_s is None:
        yield from _eventful_race(track, job, work, answer, free_frac)
        return
    try:
        yield env.timeout(delay_s(env.now, ends_s[-1]))
    except simpy.Interrupt:
        _live_through(device, job, answer, ends_s, env.now, closed=True)
    else:
        _live_through(device, job, answer, ends_s, ends_s[-1], closed=False)


def _calm_ends(device: Device, job: Job, work: float, free_frac: float) -> tuple[float, float, float] | None:
    """When the three phases end if nothing comes in between, or None if something might."""
    link, now_s = device.link, device.t_s
    handshake_s = device.group.handshakes * link.rtt_s
    speed, steady_s = _training_rate(device, 0.0)
    down_s = now_s + handshake_s + 8.0 * job.bytes_down / link.down_bps
    train_s = work / (speed * free_frac)
    end_s = down_s + train_s + handshake_s + 8.0 * job.bytes_up / link.up_bps
    if train_s < steady_s and end_s < job.deadline_s and device.nothing_before(end_s):
        return down_s, down_s + train_s, end_s
    return None


def _live_through(
    device: Device,
    job: Job,
    answer: Answer,
    ends_s: tuple[float, float, float],
    now_s: float,
    *,
    closed: bool,
) -> None:
    """Lets a device live through the phases of a calm round up to now, its end or its early close."""
    start_s, idle_w = answer.start_s, device.group.power.idle_w
    for phase, end_s in zip(_WORKING, ends_s, strict=True):
        power_w = _power_w(device, phase)
        until_s = end_s if end_s < now_s else now_s
        device.work_through(power_w, until_s)
        elapsed_s = until_s - start_s
        answer.phase = phase
        answer.energy_j += elapsed_s * (power_w + idle_w)
        if until_s < end_s:
            handshake_s = _handshake_s(device, phase)
            done_frac = max(0.0, elapsed_s - handshake_s) / (end_s - start_s - handshake_s)
        else:
            done_frac = 1.0
        _write_down(answer, phase, elapsed_s, done_frac, job)
        start_s = until_s
        if closed and now_s <= end_s and (phase is not _UPLOAD or now_s < end_s):
            answer.cause = _DEADLINE
            break
    device.work_at(0.0)
    answer.end_s, answer.soc_end = now_s, device.charge_j / device.full_j


def _eventful_race(
    track: Track, job: Job, work: float, answer: Answer, free_frac: float
) -> Generator[simpy.Event, Any, None]:
    """Runs the phases one after the other until one of them fails.

    `left` is what is left of a phase: bits of a transfer, work of the training.
    """
    env, device, cell, process = track
    group, deadline_s = device.group, job.deadline_s
    idle_w, hot_s, now_s = group.power.idle_w, 0.0, env.now
    cause: Cause | None = None
    for phase, whole in zip(_WORKING, (8.0 * job.bytes_down, work, 8.0 * job.bytes_up), strict=True):
        answer.phase = phase
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
            rate, steady_s, power_w = 0.0, INF, 0.0
            if lapse is None:
                power_w = _power_w(device, phase)
                if phase is _TRAIN:
                    rate, steady_s = _training_rate(device, hot_s)
                    rate *= free_frac
                else:
                    rate = _transfer_rate(device, phase, cell)
            device.work_at(power_w, deadline_s)
            done_s = now_s + handshake_s + left / rate if rate > 0.0 else INF
            then_s, closed = min(done_s, device.next_s, now_s + steady_s, deadline_s), False
            try:
                yield env.timeout(delay_s(env.now, then_s))
            except simpy.Interrupt as interrupt:
                then_s, closed = env.now, interrupt.cause is not SHARE_CHANGED
            elapsed_s, now_s = then_s - now_s, then_s
            device.advance(now_s)
            if lapse is None:
                answer.energy_j += elapsed_s * (power_w + idle_w)
                if phase is _TRAIN:
                    hot_s += elapsed_s
                shaken_s = min(handshake_s, elapsed_s)
                handshake_s -= shaken_s
                left = 0.0 if now_s >= done_s - SAME_S else max(0.0, left - rate * (elapsed_s - shaken_s))
                if now_s >= done_s - SAME_S:
                    cause = _DEADLINE if closed and phase is not _UPLOAD else None
                    break
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
    answer.end_s, answer.soc_end = now_s, device.charge_j / device.full_j
    answer.cause = NONE if cause is None else cause
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


def _transfer_rate(device: Device, phase: Phase, cell: SharedCell | None) -> float:
    bps = device.link.down_bps if phase is _DOWNLOAD else device.link.up_bps
    return bps if cell is None else min(bps, cell.share_bps(phase))


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
