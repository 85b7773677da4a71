"""A calm round: nothing can come in between, so its three phases are lived through in closed form, at its end.

The device still has an appointment on the world's clock and may be interrupted before it; what a round that was
raced phase by phase would have given, this gives to the last bit.
"""

from __future__ import annotations

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import (
    WORKING,
    Answer,
    Job,
    handshake_s,
    phase_powers_w,
    training_rate,
    write_down,
)
from fdsim.trace import Cause, Phase

# Looking a member up in its enum costs more than comparing it.
_UPLOAD, _DEADLINE = Phase.upload, Cause.deadline

Ends = tuple[float, float, float]


def calm_ends(device: Device, job: Job, work: float, free_frac: float) -> Ends | None:
    """When the three phases end if nothing comes in between, or None if something might."""
    link = device.link
    shake_s = device.group.handshakes * link.rtt_s
    speed, steady_s = training_rate(device, 0.0)
    down_s = device.t_s + shake_s + 8.0 * job.bytes_down / link.down_bps
    train_s = work / (speed * free_frac)
    end_s = down_s + train_s + shake_s + 8.0 * job.bytes_up / link.up_bps
    if train_s < steady_s and end_s < job.deadline_s and device.nothing_before(end_s):
        return down_s, down_s + train_s, end_s
    return None


def live_through(device: Device, start_s: float, ends_s: Ends) -> float:
    """Lets a device live through the whole of a calm round; answers with the energy it took, J."""
    idle_w, (down_s, train_s, end_s) = device.group.power.idle_w, ends_s
    down_w, train_w, up_w = phase_powers_w(device)
    device.work_through(((down_w, down_s), (train_w, train_s), (up_w, end_s)))
    return (
        (down_s - start_s) * (down_w + idle_w)
        + (train_s - down_s) * (train_w + idle_w)
        + (end_s - train_s) * (up_w + idle_w)
    )


def complete(device: Device, job: Job, answer: Answer, ends_s: Ends) -> None:
    """Lets a device live through the whole of a calm round and writes its answer."""
    start_s, (down_s, train_s, end_s) = answer.start_s, ends_s
    answer.energy_j = live_through(device, start_s, ends_s)
    answer.phase, answer.progress = _UPLOAD, 1.0
    answer.download_s, answer.train_s, answer.upload_s = down_s - start_s, train_s - down_s, end_s - train_s
    answer.bytes_down, answer.bytes_up = job.bytes_down, job.bytes_up
    answer.end_s, answer.soc_end = end_s, device.charge_j / device.full_j


def close(device: Device, job: Job, answer: Answer, ends_s: Ends, now_s: float) -> None:
    """Lets a device live through a calm round up to now, when the server closed it without waiting."""
    start_s, idle_w = answer.start_s, device.group.power.idle_w
    worked: list[tuple[float, float]] = []
    for phase, power_w, end_s in zip(WORKING, phase_powers_w(device), ends_s, strict=True):
        until_s = end_s if end_s < now_s else now_s
        worked.append((power_w, until_s))
        elapsed_s = until_s - start_s
        answer.phase = phase
        answer.energy_j += elapsed_s * (power_w + idle_w)
        if until_s < end_s:
            shake_s = handshake_s(device, phase)
            done_frac = max(0.0, elapsed_s - shake_s) / (end_s - start_s - shake_s)
        else:
            done_frac = 1.0
        write_down(answer, phase, elapsed_s, done_frac, job)
        start_s = until_s
        if now_s <= end_s and (phase is not _UPLOAD or now_s < end_s):
            answer.cause = _DEADLINE
            break
    device.work_through(worked)
    answer.end_s, answer.soc_end = now_s, device.charge_j / device.full_j
