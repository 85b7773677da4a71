"""A local round: check in → download → train → upload, raced against everything that can end it.

The race is one loop: the device works at a constant rate until the earliest of {the phase is done,
something about the device changes, the device throttles, the deadline}. When several fall on the same
instant, the order is: work that is done counts; then a lapse of eligibility; then the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from fdsim.devices.device import Device
from fdsim.devices.server import Eligibility
from fdsim.devices.share import SHARE_CHANGED, SharedCell
from fdsim.trace import NONE, Cause, Network, Phase

INF = math.inf
#: What a process is interrupted with when the server closes the round without it.
ROUND_CLOSED = "round closed"
#: Two instants closer than this are one: a nanosecond absorbs the rounding of now + (then − now).
SAME_S = 1e-9
#: These lose the work whatever the policy says.
_FATAL = (Cause.crashed, Cause.battery_empty)


@dataclass(frozen=True)
class Job:
    """What the server asks of a device in a round."""

    round_index: int
    deadline_s: float
    """The simulated time at which it is too late."""
    bytes_down: int
    bytes_up: int
    work: float
    """Training work in the unit of the device's compute law."""
    rule: Eligibility
    pause_on_lapse: bool


@dataclass(slots=True)
class Answer:
    """What became of a device in a round; the columns of a trace."""

    start_s: float
    soc_start: float
    network: int
    end_s: float = 0.0
    soc_end: float = 0.0
    cause: int = NONE
    phase: int = int(Phase.check_in)
    progress: float = 0.0
    download_s: float = math.nan
    train_s: float = math.nan
    upload_s: float = math.nan
    energy_j: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def completed(self) -> bool:
        """Whether the update arrived."""
        return self.cause == NONE


def turned_away(device: Device, now_s: float, cause: Cause) -> Answer:
    """The answer of a device that could not even check in."""
    soc = device.soc
    return Answer(now_s, soc, int(_network(device)), end_s=now_s, soc_end=soc, cause=int(cause))


def _network(device: Device) -> Network:
    return device.link.network if device.online else Network.none


class LocalRound:
    """One device's race through one round."""

    def __init__(self, env: simpy.Environment, device: Device, job: Job, cell: SharedCell | None) -> None:
        self._env, self._device, self._job, self._cell = env, device, job, cell
        self._low_j = device.low_j(job.rule)
        self._load_frac = device.group.compute.load(device.rng)
        self._hot_s = 0.0
        self._process = env.active_process
        self.answer = Answer(env.now, device.soc, int(_network(device)))

    def race(self) -> Generator[simpy.Event, Any, Answer]:
        """Runs the phases one after the other until one of them fails."""
        a, job = self.answer, self._job
        cause = yield from self._phase(Phase.download, 8.0 * job.bytes_down)
        if cause is None:
            cause = yield from self._phase(Phase.train, job.work)
        if cause is None:
            cause = yield from self._phase(Phase.upload, 8.0 * job.bytes_up)
        self._device.work_at(0.0)
        a.end_s, a.soc_end = self._env.now, self._device.soc
        a.cause = NONE if cause is None else int(cause)
        self._device.note(
            "completed" if cause is None else "dropped", float(job.round_index if cause is None else cause)
        )
        return a

    def _phase(self, phase: Phase, work: float) -> Generator[simpy.Event, Any, Cause | None]:
        """Does one phase's work; answers with what ended it early, or None."""
        self.answer.phase = int(phase)
        self._device.note(phase.name, float(self._job.round_index))
        start_s = self._env.now
        share = self._cell if phase != Phase.train else None
        if share is not None and self._process is not None:
            share.join(phase, self._process)
        cause, left = yield from self._work(phase, work)
        if share is not None and self._process is not None:
            share.leave(phase, self._process)
        setattr(self.answer, f"{phase.name}_s", self._env.now - start_s)
        done = 1.0 - left / work if work else 1.0
        if phase == Phase.download:
            self.answer.bytes_down = round(self._job.bytes_down * done)
        elif phase == Phase.upload:
            self.answer.bytes_up = round(self._job.bytes_up * done)
        else:
            self.answer.progress = done
        return cause

    def _work(self, phase: Phase, left: float) -> Generator[simpy.Event, Any, tuple[Cause | None, float]]:
        env, device, job = self._env, self._device, self._job
        handshake_s = self._handshake_s(phase)
        while True:
            lapse = device.obstacle(job.rule, phase)
            if lapse is not None and (lapse in _FATAL or not job.pause_on_lapse):
                return lapse, left
            if env.now >= job.deadline_s - SAME_S:
                return (Cause.deadline if lapse is None else lapse), left
            before_s, link = env.now, device.link
            rate, changes_s = (0.0, INF) if lapse is not None else self._rate(phase)
            device.work_at(0.0 if lapse is not None else self._power_w(phase), self._low_j)
            done_s = (
                before_s + handshake_s + left / rate
                if rate > 0.0
                else (INF if left else before_s + handshake_s)
            )
            until_s = min(done_s, device.next_s, before_s + changes_s, job.deadline_s)
            closed = False
            try:
                yield env.timeout(until_s - before_s)
            except simpy.Interrupt as interrupt:
                closed = interrupt.cause != SHARE_CHANGED
            elapsed_s = env.now - before_s
            if lapse is None:
                self.answer.energy_j += elapsed_s * (self._power_w(phase, link) + device.group.power.idle_w)
                if phase == Phase.train:
                    self._hot_s += elapsed_s
                shaken_s = min(handshake_s, elapsed_s)
                handshake_s -= shaken_s
                left -= rate * (elapsed_s - shaken_s)
            device.advance(env.now)
            if lapse is None and env.now >= done_s - SAME_S:
                return None, 0.0
            left = max(left, 0.0)
            if closed:
                return Cause.deadline, left
            if device.link is not link:
                # A new session starts with new round trips.
                handshake_s = self._handshake_s(phase)

    def _handshake_s(self, phase: Phase) -> float:
        return 0.0 if phase == Phase.train else self._device.group.handshakes * self._device.link.rtt_s

    def _rate(self, phase: Phase) -> tuple[float, float]:
        """Answers with (work per second now, seconds until the device changes its pace by itself)."""
        device = self._device
        if phase == Phase.train:
            pace, changes_s = device.group.compute.pace(self._hot_s)
            free = (1.0 - self._load_frac) * (1.0 - device.group.compute.screen_load_frac * device.screen_on)
            return device.speed * pace * free, changes_s
        bps = device.link.down_bps if phase == Phase.download else device.link.up_bps
        return (bps if self._cell is None else min(bps, self._cell.share_bps(phase))), INF

    def _power_w(self, phase: Phase, link: Any = None) -> float:
        if phase == Phase.train:
            return self._device.group.power.train_w
        radio, cellular = self._device.group.radio, (link or self._device.link).network == Network.cellular
        if phase == Phase.download:
            return radio.cellular_rx_w if cellular else radio.wifi_rx_w
        return radio.cellular_tx_w if cellular else radio.wifi_tx_w
