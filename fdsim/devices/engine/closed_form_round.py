"""An undisturbed round in closed form: nothing can happen to the device before its end, so no clock is needed.

It gives what the race of `local_round.py` would give, to the last bit.
"""

from __future__ import annotations

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import RoundRequest, phase_powers_w, training_rate, work_energy_j

#: When download, training and upload end.
Ends = tuple[float, float, float]


def closed_form_ends(device: Device, request: RoundRequest) -> Ends | None:
    """Return when the three phases end if the round is undisturbed, or None if something might disturb it."""
    link = device.surroundings.link
    shake_s = device.group.handshakes * link.rtt_s
    rate, steady_s = training_rate(device, 0.0)
    down_s = device.battery.t_s + shake_s + 8.0 * request.bytes_down / link.down_bps
    train_s = device.work / rate
    end_s = down_s + train_s + shake_s + 8.0 * request.bytes_up / link.up_bps
    if train_s < steady_s and end_s < request.deadline_s and device.nothing_before(end_s):
        return down_s, down_s + train_s, end_s
    return None


def live_through(device: Device, start_s: float, ends_s: Ends) -> float:
    """Let a device live through an undisturbed round and return the energy it took, J."""
    down_s, train_s, end_s = ends_s
    down_w, train_w, up_w = phase_powers_w(device)
    device.work_through(((down_w, down_s), (train_w, train_s), (up_w, end_s)))
    return (
        work_energy_j(device, down_w, down_s - start_s)
        + work_energy_j(device, train_w, train_s - down_s)
        + work_energy_j(device, up_w, end_s - train_s)
    )
