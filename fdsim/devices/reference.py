"""The fleet in plain SimPy: the definition of the device model, meant to be read first.

A device has a link, a screen, a charger and a battery; outages and crashes happen to it. Each of these is a SimPy
process that follows the spells of its model (fdsim.devices.models) and changes the device. The battery is a process
too: it waits for the next charge level at which something happens, and looks again after every change. The server
selects devices for a round and starts a `LocalRound` for each, a race: check in → download → train → upload, against
every change of the device, the cell it shares, throttling, the deadline and the server closing the round.

Several things may happen at the same instant. `Turn`, in clock.py, is their order: first what happens to the devices
(charge level, link, screen, charger, outage, crash), then the local rounds, then the server. So a device that checks in
sees all changes of that instant; and within a local round work that is done counts, then a lapse of eligibility (the
gravest cause, see `Device.obstacle`), then the deadline, then the close of the round.

Random numbers come from named streams: owner, link, screen, charger, crash and "device" of each client (charge at the start,
power, speed, then the background load at each successful check-in), "trouble" of each outage, "selection" of each round.
Nothing here is written for speed; the engine is, and a test compares the two on random worlds.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import simpy

from fdsim.devices.clock import Clock, Turn
from fdsim.devices.config.fleet import DeviceGroup, Drain
from fdsim.devices.config.simulation import SimulationConfig, check, hits
from fdsim.devices.models.battery import Flow
from fdsim.devices.models.connectivity import Spell
from fdsim.devices.models.habits import Habits, Owner, Place
from fdsim.devices.models.spells import HOUR_S, Switch
from fdsim.rng import stream
from fdsim.trace import NONE, Cause, Network, Outcome, Phase, TraceRound, blank_round

INF = math.inf
#: Two instants closer than this are one: a nanosecond absorbs the rounding of sums of times.
SAME_S = 1e-9
OFFLINE = Spell(False, INF, Network.none, 0.0, 0.0, 0.0)
#: These lose the work, also where a lapse only pauses it.
FATAL = (Cause.crashed, Cause.battery_empty)
Process = Generator[simpy.Event, Any, None]
Row = dict[str, float]


class SharedCell:
    """One direction of a cell, its bandwidth divided evenly among those who transfer, also while they pause."""

    def __init__(self, env: Clock, capacity_bps: float) -> None:
        self.env, self.capacity_bps, self.members, self.changed = env, capacity_bps, 0, env.event()

    @property
    def share_bps(self) -> float:
        """What each member gets; a slower link leaves the rest of its share unused."""
        return self.capacity_bps / self.members

    def join(self, members: int = 1) -> None:
        """Add a member, or with −1 remove one, and wake the others, since the bandwidth of each has changed."""
        self.members += members
        changed, self.changed = self.changed, self.env.event()
        changed.succeed()


class Device:
    """The state of one device, which changes through `change` only, and the processes that change it."""

    def __init__(self, env: Clock, config: SimulationConfig, client: int, group: DeviceGroup) -> None:
        self.env, self.client, self.group, self.rule = env, client, group, config.server.eligibility
        self.link, self.screen_on, self.charger_on, self.crashed = OFFLINE, False, False, False
        self.taken: dict[int, tuple[str, ...]] = {}  # By each outage now going on: wifi, cellular, power.
        self.rng = stream(config.seed, "device", client)
        self.full_j = group.battery.full_j(0.0)
        self.readings = group.battery.readings(client, config.seed)  # A measured charge, if there is one.
        soc = float(self.rng.uniform(*group.soc_range))
        self.charge_j = self.full_j * (soc if self.readings is None else self.readings.soc_at(0.0))
        self.power, self.speed = group.power.of_device(self.rng), group.compute.speed(self.rng)
        self.soc_after = Drain(group.battery, self.power).soc_after  # For models that look at the day before.
        self.low_soc = self.floor_soc = max(self.rule.min_soc, group.low_soc)  # Higher while work waits.
        self.empty = self.charge_j <= 0.0 and self.readings is None
        self.topping_up = False  # The owner has plugged it in because it was nearly empty.
        self.work_w = 0.0  # What the present phase of a local round adds to the load.
        self.throughput_j = 0.0  # All that was ever charged into the battery, which ages by it.
        self.t_s, self.changed = env.now, env.event()
        self.charger_moved = env.event()  # The device goes on or off its charger.
        self.owner = Owner(group.habits or Habits(), stream(config.seed, "owner", client))

    def change(self, **state: Any) -> None:
        """Bring the charge up to now, change some attributes, and wake whoever waits for `changed`."""
        self.settle()
        was_on = self.on_charger
        vars(self).update(state)
        if self.on_charger != was_on and self.group.usage.screen_sees_charger:
            moved, self.charger_moved = self.charger_moved, self.env.event()
            moved.succeed()
        changed, self.changed = self.changed, self.env.event()
        changed.succeed()

    def settle(self) -> None:
        """Bring the charge up to now; nothing that moves it has changed since it was settled last."""
        before_j, time_s = self.charge_j, self.env.now - self.t_s
        if time_s > 0.0 and self.readings is not None:
            self.charge_j, self.t_s = self.full_j * self.readings.soc_at(self.env.now), self.env.now
        elif time_s > 0.0:
            self.charge_j = self.group.battery.after(before_j, time_s, self.flow)
            self.throughput_j += max(0.0, self.charge_j - before_j)
            self.t_s = self.env.now

    @property
    def soc(self) -> float:
        """The state of charge, 0..1."""
        return self.charge_j / self.full_j

    def begin_at(self, soc: float) -> None:
        """Begin with a state of charge, if the group leaves that to how the device is used."""
        if self.group.initial_soc == "usual" and self.readings is None:
            self.charge_j, self.empty = self.full_j * soc, soc <= 0.0

    @property
    def on_charger(self) -> bool:
        """Whether the charger is in, by habit or to top up."""
        return self.charger_on or self.topping_up

    @property
    def plugged(self) -> bool:
        """Whether the charger is in and has power."""
        return self.on_charger and not self.is_taken("power")

    @property
    def flow(self) -> Flow:
        """What acts on the battery now. An empty device draws nothing."""
        load_w = self.power.idle_w + self.work_w + (self.power.screen_w if self.screen_on else 0.0)
        return Flow(0.0 if self.empty else load_w, self.plugged, self.full_j)

    def is_taken(self, what: str) -> bool:
        """Return whether an outage has taken a network, or the power, away."""
        return any(what in taken for taken in self.taken.values())

    def obstacle(self, phase: Phase) -> Cause | None:
        """Return what keeps the device from working in a phase, the gravest first, or None."""
        self.settle()
        rule = self.rule
        if self.crashed or self.empty:
            return Cause.crashed if self.crashed else Cause.battery_empty
        if phase is not Phase.train or rule.requires_unmetered:  # Training may do without a link.
            if not self.link.online:
                return Cause.offline if phase is Phase.check_in else Cause.link_lost
            if self.is_taken(self.link.network.name):
                return Cause.outage
        if self.charge_j < self.floor_soc * self.full_j:
            return Cause.battery_low
        if rule.requires_charging and not self.plugged:
            return Cause.outage if self.on_charger else Cause.unplugged
        if rule.requires_unmetered and self.link.network is not Network.wifi:
            return Cause.metered
        if rule.requires_idle and self.screen_on:
            return Cause.in_use
        return None

    def rest(self) -> None:
        """Let paused work wait for a charge that is well above the lowest: at it, work would flicker."""
        more_soc = self.rule.resume_soc_margin if self.charge_j < self.floor_soc * self.full_j else 0.0
        if self.low_soc + more_soc != self.floor_soc:
            self.change(floor_soc=self.low_soc + more_soc)

    def follow_link(self, spells: Iterator[Spell]) -> Process:
        """Go from network to network. In this and every other follow_…, the last spell lasts for ever."""
        for spell in spells:
            self.change(link=spell if spell.online else OFFLINE)
            yield self.env.spell(spell.length_s, Turn.link)

    def follow_screen(self, spells: Iterator[Switch]) -> Process:
        """Switch the screen on and off; a model that sees the charger is asked anew when that goes in or out."""
        for on, length_s in spells:
            self.change(screen_on=on)
            yield self.env.spell(length_s, Turn.screen) | self.charger_moved

    def follow_charger(self, spells: Iterator[Switch]) -> Process:
        """Plug the charger in and out, which ends a top-up. A battery is seen to have aged when it goes in."""
        for on, length_s in spells:
            self.change(charger_on=on, topping_up=False)
            if on:  # What is in the battery stays in it: full is never below the charge.
                self.change(full_j=max(self.group.battery.full_j(self.throughput_j), self.charge_j))
            yield self.env.spell(length_s, Turn.charger)
            self.settle()  # The model looks at the charge when it is asked for the next spell.

    def follow_outage(self, number: int, takes: tuple[str, ...], spells: Iterator[Switch]) -> Process:
        """Lose to an outage what it takes, and get it back."""
        for active, length_s in spells:
            self.change(taken=self.taken | {number: takes if active else ()})
            yield self.env.spell(length_s, Turn.outage)

    def follow_crashes(self, spells: Iterator[Switch]) -> Process:
        """Crash and recover."""
        for crashed, length_s in spells:
            self.change(crashed=crashed)
            yield self.env.spell(length_s, Turn.crash)

    def follow_battery(self) -> Process:
        """Wait for the next charge level at which something happens; look again whenever the device changes."""
        while True:
            after_s, level_j, change = self.next_level()
            reached = self.env.at(self.env.now + after_s, Turn.level)
            if reached in (yield reached | self.changed):
                self.change(charge_j=level_j, **change)  # Exactly there, whatever the rounding of `after`.

    def next_level(self) -> tuple[float, float, dict[str, bool]]:
        """Return when the charge meets its next level, in s, the level, J, and what changes there but the obstacle."""
        flow, group, full_j, charge_j = self.flow, self.group, self.full_j, self.charge_j
        if self.readings is not None:
            then_s = self.readings.next_crossing(self.env.now, self.floor_soc)
            return then_s - self.env.now, full_j * self.readings.soc_at(then_s), {}
        low_j, top_up_j = self.floor_soc * full_j, group.usage.top_up_soc * full_j
        above: list[tuple[float, dict[str, bool]]] = []
        if self.empty or charge_j < low_j:
            above.append((group.boot_soc * full_j, {"empty": False}) if self.empty else (low_j, {}))
        if self.topping_up:
            above.append((group.usage.top_up_to_soc * full_j, {"topping_up": False}))
        below: list[tuple[float, dict[str, bool]]] = [(0.0, {"empty": True})]
        if 0.0 < top_up_j < charge_j and not flow.plugged and not self.topping_up:
            below.append((top_up_j, {"topping_up": True}))
        if below[-1][0] < low_j <= charge_j:
            # Just below the level, so that a charge that has risen to it has not fallen through it.
            below.append((math.nextafter(low_j, 0.0), {}))
        # `below` ascends. The charge goes one way: the time to a level on the other side is infinite.
        nearest = sorted(above, key=lambda level: level[0])[:1] if flow.plugged else []
        for level_j, change in nearest + (below[-1:] if not self.empty else []):
            time_s = group.battery.time_to_level(charge_j, level_j, flow)
            if time_s < INF:
                return time_s, level_j, change
        return INF, 0.0, {}


class LocalRound:
    """A device's part in a round; `closed` happens when the server waits no longer."""

    def __init__(self, device: Device, server: Server, closed: simpy.Event) -> None:
        self.env, self.device, self.config, self.closed = device.env, device, server.config, closed
        place, cells = server.cells.get(device.group.cell, (None, {}))
        self.cells = cells if place in (None, device.owner.at(self.env.now).place) else {}
        self.deadline_s = self.env.now + self.config.server.deadline_s
        self.pauses = self.config.server.on_lapse == "pause"
        self.row: Row = {"phase": Phase.check_in, "start_s": self.env.now, "energy_j": 0.0}

    def run(self) -> Generator[simpy.Event, Any, Row]:
        """Check in, download, train and upload; return the row of the trace: column → value."""
        device, row, workload = self.device, self.row, self.config.workload
        cause = device.obstacle(Phase.check_in)
        cut_off = device.empty or device.is_taken(device.link.network.name)
        row["soc_start"], row["network"] = device.soc, Network.none if cut_off else device.link.network
        if cause is None:
            self.free_frac = 1.0 - device.group.compute.load(device.rng)  # Of the processor, all through.
            done_frac, cause = yield from self.race(Phase.download, 8.0 * workload.bytes_down)
            row["bytes_down"] = round(done_frac * workload.bytes_down)
        if cause is None:
            work = device.group.compute.work(workload.cost, float(workload.samples[device.client]))
            row["progress"], cause = yield from self.race(Phase.train, work)
        if cause is None:
            done_frac, cause = yield from self.race(Phase.upload, 8.0 * workload.bytes_up)
            row["bytes_up"] = round(done_frac * workload.bytes_up)
        device.change(work_w=0.0, floor_soc=device.low_soc)
        row["end_s"], row["soc_end"] = self.env.now, device.soc
        row["outcome"] = Outcome.completed if cause is None else Outcome.dropped
        row["cause"] = NONE if cause is None else cause
        return row

    def race(self, phase: Phase, whole: float) -> Generator[simpy.Event, Any, tuple[float, Cause | None]]:
        """Work through `whole` bits, or units of the compute model; return (fraction done, what ended it or None)."""
        env, device, row = self.env, self.device, self.row
        cell = self.cells.get(phase) or SharedCell(env, INF)  # Nobody to share with: training, or no cell.
        start_s, left, hot_s, session, handshake_s = env.now, whole, 0.0, None, 0.0
        cause, done, row["phase"] = None, False, phase
        cell.join()
        while cause is None and not done:
            if device.link is not session and phase is not Phase.train:  # New sessions, new round trips.
                session, handshake_s = device.link, device.group.handshakes * device.link.rtt_s
            lapse = device.obstacle(phase)
            device.rest()
            too_late = env.now >= self.deadline_s - SAME_S
            if too_late or lapse in FATAL or (lapse is not None and not self.pauses):
                # A device that is still paused at the deadline failed for what it was paused for.
                cause = Cause.deadline if lapse is None else lapse
                break
            pace = self.pace(phase, hot_s, cell.share_bps) if lapse is None else (0.0, INF, 0.0)
            rate, steady_s, work_w = pace
            if work_w != device.work_w:
                device.change(work_w=work_w)
            since_s = env.now  # The rate is constant from here until something happens.
            done_s = since_s + handshake_s + left / rate if rate > 0.0 else INF
            own = env.at(min(done_s, since_s + steady_s, self.deadline_s), Turn.local_round)
            yield own | device.changed | cell.changed | self.closed
            yield env.at(env.now, Turn.local_round)  # Whatever else happens at this instant happens first.
            elapsed_s, done = env.now - since_s, env.now >= done_s - SAME_S
            if lapse is None:
                # The round pays for what it adds and for idling; the screen is the owner's.
                row["energy_j"] += elapsed_s * (work_w + device.power.idle_w)
                hot_s += elapsed_s
                shaken_s = min(handshake_s, elapsed_s)
                handshake_s -= shaken_s
                left = 0.0 if done else max(0.0, left - rate * (elapsed_s - shaken_s))
            if self.closed.triggered and not (done and phase is Phase.upload):
                cause = Cause.deadline  # Too late for a server that has closed, too.
        cell.join(-1)
        row[f"{phase.name}_s"] = env.now - start_s
        return 1.0 - left / whole if whole else float(cause is None), cause

    def pace(self, phase: Phase, hot_s: float, share_bps: float) -> tuple[float, float, float]:
        """Return (bits or work per second, seconds until the device throttles, power added in W)."""
        group, link, now_s = self.device.group, self.device.link, self.env.now
        radio, compute, cellular = group.radio, group.compute, link.network is Network.cellular
        if phase is Phase.download:
            return min(link.down_bps, share_bps), INF, radio.cellular_rx_w if cellular else radio.wifi_rx_w
        if phase is Phase.upload:
            return min(link.up_bps, share_bps), INF, radio.cellular_tx_w if cellular else radio.wifi_tx_w
        speed_frac, steady_s = compute.pace(hot_s)
        if now_s + steady_s == now_s:  # Too little for the clock to move by: the device throttles now.
            speed_frac, steady_s = compute.pace(hot_s + SAME_S)
        screen_frac = 1.0 - compute.screen_load_frac if self.device.screen_on else 1.0
        rate = self.device.speed * speed_frac * screen_frac * self.free_frac
        return rate, steady_s, self.device.power.train_w


class Server:
    """The server, its devices, and what they share: cells and outages."""

    def __init__(self, env: Clock, config: SimulationConfig) -> None:
        self.env, self.config = env, config
        groups = [group for group in config.fleet for _ in range(group.count)]
        self.devices = [Device(env, config, client, group) for client, group in enumerate(groups)]
        self.cells: dict[str, tuple[Place | None, dict[Phase, SharedCell]]] = {}
        for c in config.cells:
            shared = {Phase.download: SharedCell(env, c.down_bps), Phase.upload: SharedCell(env, c.up_bps)}
            self.cells[c.name] = c.place, shared
        for device in self.devices:
            self.start(device)

    def start(self, device: Device) -> None:
        """Start the processes of a device, whose spells begin at midnight of day 0."""
        client, group, seed, process = device.client, device.group, self.config.seed, self.env.process
        connectivity = group.connectivity.for_device(client, seed)
        usage = group.usage.for_device(client, seed)
        process(device.follow_link(connectivity.follow(stream(seed, "link", client), device)))
        process(device.follow_charger(usage.charger(stream(seed, "charger", client), device)))
        process(device.follow_screen(usage.screen(stream(seed, "screen", client), device)))
        if group.crash is not None:
            process(device.follow_crashes(group.crash.spells(stream(seed, "crash", client))))
        process(device.follow_battery())
        for number, outage in enumerate(self.config.outages):
            if hits(outage, group):
                spells = outage.spells(stream(seed, "trouble", number))  # The same for all that it hits.
                process(device.follow_outage(number, outage.takes, outage.felt(spells, device.owner)))

    def select(self, round_index: int) -> list[int]:
        """Return the selected clients, ascending: more than the target where the server over-selects."""
        devices, selection = self.devices, self.config.server.selection
        if selection.pool == "eligible":
            devices = [device for device in devices if device.obstacle(Phase.check_in) is None]
        target = selection.target_of(len(self.devices))
        wanted = min(len(devices), math.ceil(target * self.config.server.over_selection - 1e-9))
        pool = np.array([device.client for device in devices], dtype=np.int64)
        rng = stream(self.config.seed, "selection", round_index)
        return [int(client) for client in selection.selected_from(pool, wanted, rng)]

    def run_round(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Select devices, let them do their local rounds, and close when all, or enough, have reported."""
        env, config = self.env, self.config.server
        # A round starts when it is planned, or when the one before it is over.
        planned_s = config.start_hour * HOUR_S + round_index * config.round_interval_s
        yield env.at(max(planned_s, env.now), Turn.server)
        start_s, selected, closed = env.now, self.select(round_index), env.event()
        target = min(config.selection.target_of(len(self.devices)), len(selected))
        wanted = target if config.over_selection > 1.0 else len(selected)
        rounds = {c: env.process(LocalRound(self.devices[c], self, closed).run()) for c in selected}
        running, reports = list(rounds.values()), 0
        while running and reports < wanted:
            yield env.any_of(running)
            yield env.at(env.now, Turn.server)
            ended: list[Any] = [process.value for process in rounds.values() if process.processed]
            running = [process for process in rounds.values() if not process.processed]
            reports = sum(row["outcome"] == Outcome.completed for row in ended)
        closed.succeed()
        rows: dict[int, Row] = dict(zip(rounds, (yield env.all_of(rounds.values())).values(), strict=True))
        end_s = max((row["end_s"] for row in rows.values()), default=start_s)
        made = blank_round(round_index, len(self.devices), start_s, end_s)
        for client, row in rows.items():
            for column, value in row.items():
                getattr(made, column)[client] = value
        if len(made.completed) < config.min_reports_frac * target:  # Too few for the server to use any.
            made.cause[made.completed] = Cause.abandoned
            made.outcome[made.completed] = Outcome.dropped
        return made


def simulate_reference(config: SimulationConfig) -> Iterator[TraceRound]:
    """Simulate a fleet and yield each round as soon as it is closed."""
    check(config)
    server = Server(env := Clock(), config)
    for round_index in range(config.rounds):
        yield env.run(until=env.process(server.run_round(round_index)))  # type: ignore[misc]
