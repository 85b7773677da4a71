"""A calm round: nothing can come in between, so its three phases are lived through in closed form, at its end.

The device still has an appointment on the world's clock and may be interrupted before it; what a round that was
raced phase by phase would have given, this gives to the last bit.
"""

from __future__ import annotations

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import (
    WORKING,
    LocalRoundResult,
    RoundRequest,
    handshake_s,
    phase_powers_w,
    training_rate,
    write_down,
)
from fdsim.trace import Cause, Phase

# Looking a member up in its enum costs more than comparing it.
_UPLOAD, _DEADLINE = Phase.upload, Cause.deadline

Ends = tuple[float, float, float]


def closed_form_ends(device: Device, request: RoundRequest, work: float, free_frac: float) -> Ends | None:
    """When the three phases end if nothing comes in between, or None if something might."""
    link = device.link
    shake_s = device.group.handshakes * link.rtt_s
    speed, steady_s = training_rate(device, 0.0)
    down_s = device.t_s + shake_s + 8.0 * request.bytes_down / link.down_bps
    train_s = work / (speed * free_frac)
    end_s = down_s + train_s + shake_s + 8.0 * request.bytes_up / link.up_bps
    if train_s < steady_s and end_s < request.deadline_s and device.nothing_before(end_s):
        return down_s, down_s + train_s, end_s
    return None


def live_through(device: Device, start_s: float, ends_s: Ends) -> float:
    """Let a device live through the whole of a calm round; results with the energy it took, J."""
    idle_w, (down_s, train_s, end_s) = device.group.power.idle_w, ends_s
    down_w, train_w, up_w = phase_powers_w(device)
    device.work_through(((down_w, down_s), (train_w, train_s), (up_w, end_s)))
    return (
        (down_s - start_s) * (down_w + idle_w)
        + (train_s - down_s) * (train_w + idle_w)
        + (end_s - train_s) * (up_w + idle_w)
    )


def complete(device: Device, request: RoundRequest, result: LocalRoundResult, ends_s: Ends) -> None:
    """Let a device live through the whole of a calm round and write its result."""
    start_s, (down_s, train_s, end_s) = result.start_s, ends_s
    result.energy_j = live_through(device, start_s, ends_s)
    result.phase, result.progress = _UPLOAD, 1.0
    result.download_s, result.train_s, result.upload_s = down_s - start_s, train_s - down_s, end_s - train_s
    result.bytes_down, result.bytes_up = request.bytes_down, request.bytes_up
    result.end_s, result.soc_end = end_s, device.charge_j / device.full_j


def close(
    device: Device, request: RoundRequest, result: LocalRoundResult, ends_s: Ends, now_s: float
) -> None:
    """Let a device live through a calm round up to now, when the server closed it without waiting."""
    start_s, idle_w = result.start_s, device.group.power.idle_w
    worked: list[tuple[float, float]] = []
    for phase, power_w, end_s in zip(WORKING, phase_powers_w(device), ends_s, strict=True):
        until_s = end_s if end_s < now_s else now_s
        worked.append((power_w, until_s))
        elapsed_s = until_s - start_s
        result.phase = phase
        result.energy_j += elapsed_s * (power_w + idle_w)
        if until_s < end_s:
            shake_s = handshake_s(device, phase)
            done_frac = max(0.0, elapsed_s - shake_s) / (end_s - start_s - shake_s)
        else:
            done_frac = 1.0
        write_down(result, phase, elapsed_s, done_frac, request)
        start_s = until_s
        if now_s <= end_s and (phase is not _UPLOAD or now_s < end_s):
            result.cause = _DEADLINE
            break
    device.work_through(worked)
    result.end_s, result.soc_end = now_s, device.charge_j / device.full_j
