"""Usage by need and habit: owners charge when the battery is low or when they go to sleep, and look at what they unplug."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from fdsim.devices.models.habits import Night, Owner, Phone
from fdsim.devices.models.loose_plug import LoosePlug
from fdsim.devices.models.spells import (
    BLOCK,
    DAY_S,
    HOUR_S,
    PART_OF_HOUR,
    Lengths,
    Switch,
    normals,
    part_of_day,
)
from fdsim.devices.models.usage import Usage
from fdsim.devices.models.usage_hours import ByHour, exponentials, wait_by_hour

Frac = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(ge=0, le=6)]

_PLUG_IN = (0.15,) * 6 + (0.35,) * 6 + (0.6,) * 10 + (0.4,) * 2


#: A screen that is left on is seen to when the charger goes in or out, every few hours, s.
_LEFT_ON_CUT_S = 2 * HOUR_S


class _Charging(NamedTuple):
    """How one owner charges, and the luck of it."""

    rates: tuple[float, ...]
    stretch: float
    waits: Iterator[float]
    luck: Iterator[float]


class HabitUsage(Usage):
    """Charging by need and habit, and a screen that sees every charge and sleeps with its owner.

    Charger: an awake owner thinks of charging at `plug_in_per_hour`, and does it with a chance that is 1 up to
    `need_soc`, falls in a straight line to `spare_frac` at `ease_soc` and stays there; times `idle_plug_frac` if the
    screen is off, times `out_plug_frac` if he is not at home. `nightly_frac` of the owners also plug in when they go
    to sleep, on `nightly_keep_frac` of the nights, and unplug when they get up. Other charges last a lognormal time,
    whatever the level: a full battery stays on the charger. A loose plug cuts charges into pieces.

    Screen: lognormal spells as in `spells`, longer when off by `asleep_calm_factor` while the owner sleeps and by
    `plugged_calm_factor` on the charger. Plugging in and unplugging light the screen: in for a glance, out for use.
    """

    screen_sees_charger: ClassVar[bool] = True

    screen_on: Lengths = Field(
        Lengths(median_s=45.0, ln_sd=2.2), description="lengths of the spells with the screen on"
    )
    screen_off: Lengths = Field(
        Lengths(median_s=90.0, ln_sd=2.2), description="lengths of those with the screen off"
    )
    screen_device_ln_sd: Spread = Field(default=0.5, description="spread between devices of ln(on : off)")
    screen_tempo_ln_sd: Spread = Field(
        default=0.3, description="spread between devices of ln(length) of on and off spells alike"
    )
    asleep_calm_factor: float = Field(
        default=3.0,
        gt=0,
        le=1000,
        description="screen-off spells are so many times as long while the owner sleeps",
    )
    plugged_calm_factor: float = Field(
        default=2.0, gt=0, le=1000, description="screen-off spells are so many times as long on the charger"
    )
    plugged_on_factor: float = Field(
        default=1.0, gt=0, le=100, description="screen-on spells are so many times as long on the charger"
    )
    left_on_frac: Frac = Field(
        default=0.0,
        description="share of screen sessions in which the screen is left on, or logged as if it were",
    )
    left_on: Lengths = Field(
        default=Lengths(median_s=28_800.0, ln_sd=0.5), description="for how long it is left on"
    )
    glance_s: float = Field(
        default=15.0, gt=0, le=600, description="median time for which plugging in lights the screen, s"
    )
    plug_in_per_hour: ByHour = Field(
        default=_PLUG_IN,
        description="plug-ins an hour of an owner at home with a low battery and the screen on, for hours 0..23",
    )
    plug_in_device_ln_sd: Spread = Field(
        default=0.5, description="spread between devices of ln(plug-ins an hour)"
    )
    need_soc: Frac = Field(default=0.25, description="below this charge the need to charge is full")
    ease_soc: Frac = Field(default=0.6, description="above this charge it is at its least")
    spare_frac: Frac = Field(default=0.25, description="what is left of the need there")
    idle_plug_frac: Frac = Field(
        default=0.45, description="plug-ins with the screen off, relative to the screen on"
    )
    out_plug_frac: float = Field(
        default=0.7, ge=0, le=10, description="plug-ins at work or on the way, relative to at home"
    )
    charge: Lengths = Field(
        Lengths(median_s=3400.0, ln_sd=1.4), description="lengths of the charges that are not nightly"
    )
    charge_device_ln_sd: Spread = Field(
        default=0.3, description="spread between devices of ln(length of a charge)"
    )
    nightly_frac: Frac = Field(default=0.3, description="share of owners who plug in when they go to sleep")
    nightly_keep_frac: Frac = Field(default=0.8, description="share of the nights on which these do so")
    loose_plug: LoosePlug | None = Field(
        default=None, description="how chargers lose contact; none for those that never do"
    )

    @model_validator(mode="after")
    def _possible(self) -> HabitUsage:
        if not all(rate >= 0 for rate in self.plug_in_per_hour):
            raise ValueError("plug_in_per_hour must not be negative")
        if self.ease_soc < self.need_soc:
            raise ValueError(f"ease_soc = {self.ease_soc} must not be below need_soc = {self.need_soc}")
        return self

    def need(self, soc: float) -> float:
        """Return the chance, 0..1, that an owner who thinks of charging does it at a state of charge."""
        if soc <= self.need_soc:
            return 1.0
        if soc >= self.ease_soc:
            return self.spare_frac
        return 1.0 - (1.0 - self.spare_frac) * (soc - self.need_soc) / (self.ease_soc - self.need_soc)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield the charger's spells; whether an off spell ends in a charge is decided at its end."""
        owner = phone.owner
        busy, nightly = self.plug_in_device_ln_sd * owner.leaning(rng), rng.random()
        stretch = self.charge_device_ln_sd * owner.leaning(rng)
        # The spread is around the mean, so that a wider one does not mean more plug-ins in all.
        rates = tuple(
            rate * math.exp(busy - self.plug_in_device_ln_sd**2 / 2) for rate in self.plug_in_per_hour
        )
        is_nightly, loose = bool(nightly < self.nightly_frac), self.loose_plug
        luck, waits, t_s = normals(rng), exponentials(rng), 0.0
        bed_s, wake_s = owner.last_night
        if not (is_nightly and rng.random() < self.nightly_keep_frac):
            bed_s = math.inf
        soc, length_s = self._day_before(phone, _Charging(rates, stretch, waits, luck), Night(bed_s, wake_s))
        phone.begin_at(soc)
        while True:
            if length_s > 0.0:
                if loose is None:
                    yield Switch(True, length_s)
                else:
                    yield from loose.pieces(length_s, rng)
                t_s += length_s
            now = owner.at(t_s)
            wait_s = wait_by_hour(t_s + owner.shift_s, rates, next(waits))
            at_bed = is_nightly and not now.asleep and wait_s > now.until_s - t_s
            if at_bed:
                wait_s = now.until_s - t_s
            yield Switch(False, wait_s)
            t_s += wait_s
            now, length_s = owner.at(t_s), 0.0
            if at_bed and now.asleep:
                if rng.random() < self.nightly_keep_frac:
                    length_s = now.until_s - t_s
            elif not at_bed and rng.random() < self._chance(phone, home=now.place == "home"):
                mean, sd = self.charge.ln[_part(t_s, owner)]
                length_s = math.exp(mean + stretch + sd * next(luck))

    def _day_before(self, phone: Phone, habit: _Charging, night: Night) -> tuple[float, float]:
        """Live roughly through the day before day 0; return the state of charge at its end and for how long a charge goes on.

        The same as every day, but with the screen on for its usual share, the need looked at every two hours, and the
        owner at home: so devices are met as they are at any midnight, and not all of them off their chargers.
        """
        soc, until_s, wait = phone.soc, -DAY_S, next(habit.waits)
        t_s, shift_s, lit_fracs, soc_after = -DAY_S, phone.owner.shift_s, self._lit_fracs, phone.soc_after
        while t_s < 0.0:
            own_s = (t_s + shift_s) % DAY_S
            hour = int(own_s // HOUR_S)
            part, plugged = PART_OF_HOUR[hour], until_s > t_s
            lit_frac = lit_fracs[plugged][part]
            if plugged:
                then_s, wait = min(until_s, 0.0), next(habit.waits)
            else:
                then_s = min(t_s + (hour // 2 + 1) * 2 * HOUR_S - own_s, 0.0)
                if t_s < night.bed_s < then_s:
                    then_s = night.bed_s
                at_screen = lit_frac + (1 - lit_frac) * self.idle_plug_frac
                per_s = habit.rates[hour] / HOUR_S * self.need(soc) * at_screen
                if wait < per_s * (then_s - t_s):
                    then_s, (mean, sd) = t_s + wait / per_s, self.charge.ln[part]
                    until_s = then_s + math.exp(mean + habit.stretch + sd * next(habit.luck))
                elif then_s == night.bed_s:
                    until_s = night.wake_s
                else:
                    wait -= per_s * (then_s - t_s)
            soc = soc_after(soc, then_s - t_s, lit_frac=lit_frac, plugged=plugged)
            t_s = then_s
        return soc, max(0.0, until_s)

    @cached_property
    def _lit_fracs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The share of time for which the screen is on, about, off the charger and on it, by part of the day."""
        left_s = self.left_on_frac * self.left_on.mean_up_to_s(_LEFT_ON_CUT_S)
        found: tuple[list[float], list[float]] = [], []
        for plugged, (longer_on, longer_off) in enumerate(
            ((1.0, 1.0), (self.plugged_on_factor, self.plugged_calm_factor))
        ):
            for part in range(4):
                on_s = (1 - self.left_on_frac) * longer_on * self.screen_on.mean_up_to_s(DAY_S, part) + left_s
                off_s = longer_off * self.screen_off.mean_up_to_s(DAY_S, part)
                if part == 0:  # The night, in which owners sleep.
                    off_s *= self.asleep_calm_factor
                found[plugged].append(on_s / (on_s + off_s))
        return tuple(found[0]), tuple(found[1])

    def _chance(self, phone: Phone, *, home: bool) -> float:
        chance = self.need(phone.soc)
        if not phone.screen_on:
            chance *= self.idle_plug_frac
        return chance if home else chance * self.out_plug_frac

    def _left_on_share(self, used_s: float) -> float:
        """Return the share of the time with the screen on in which it was left on; `used_s` is the mean of other sessions."""
        left_s = self.left_on_frac * self.left_on.mean_up_to_s(_LEFT_ON_CUT_S)
        return left_s / (left_s + (1 - self.left_on_frac) * used_s)

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield the screen's spells; one is drawn anew whenever the charger goes in or out."""
        owner = phone.owner
        shift_s, at = owner.shift_s, owner.at
        stretch = -self.screen_device_ln_sd * float(rng.standard_normal()) / 2
        tempo = self.screen_tempo_ln_sd * float(rng.standard_normal())
        on_ln, off_ln = self.screen_on.ln, self.screen_off.ln
        longer_on, longer_off = tempo + stretch, tempo - stretch
        asleep_ln, plugged_ln = math.log(self.asleep_calm_factor), math.log(self.plugged_calm_factor)
        plugged_on_ln = math.log(self.plugged_on_factor)
        exp, make, left_ln = math.exp, tuple.__new__, self.left_on.ln
        # The luckiest spells are those that are left on, so that nobody has to draw a second number for it.
        left_z = NormalDist().inv_cdf(1.0 - self.left_on_frac) if 0.0 < self.left_on_frac < 1.0 else math.inf
        part, _ = part_of_day(shift_s)
        (on_mean, on_sd), (off_mean, off_sd) = on_ln[part], off_ln[part]
        if at(0.0).asleep:
            off_mean += asleep_ln
        if phone.on_charger:
            on_mean, off_mean = on_mean + plugged_on_ln, off_mean + plugged_ln
        on_share = 1 / (1 + exp(off_mean + off_sd**2 / 2 - on_mean - on_sd**2 / 2 - 2 * stretch))
        left_share = self._left_on_share(exp(on_mean + longer_on + on_sd**2 / 2))
        # Screens that were left on are on for hours: at any moment there are more of them than their share of sessions.
        on_share /= 1 - left_share * (1 - on_share)
        luck = float(rng.random())
        is_on, plugged, length_s = luck < on_share, phone.on_charger, 0.0
        mean, sd = (on_mean + longer_on, on_sd) if is_on else (off_mean + longer_off, off_sd)
        if luck < on_share * left_share:
            mean, sd = left_ln[part]
        length_s = float(1.0 - rng.random()) * exp(mean + sd * sd + sd * float(rng.standard_normal()))
        yield Switch(is_on, length_s)
        t_s, part, part_until_s, asleep, asleep_until_s = length_s, 0, -math.inf, False, -math.inf
        glance_ln = math.log(self.glance_s)
        while True:
            for z in rng.standard_normal(BLOCK).tolist():
                if phone.on_charger != plugged:
                    # Drawn before the last spell was over: the charger went in or out at this moment.
                    plugged, t_s, is_on = not plugged, phone.t_s, True
                    if plugged:
                        length_s = exp(glance_ln + z)
                        t_s += length_s
                        yield make(Switch, (True, length_s))
                        continue
                else:
                    is_on = not is_on
                if t_s >= part_until_s:
                    part, part_until_s = part_of_day(t_s + shift_s)
                    part_until_s -= shift_s
                if is_on:
                    mean, sd = on_ln[part]
                    if z > left_z:
                        (mean, sd), z = left_ln[part], float(rng.standard_normal())
                        length_s = exp(mean + sd * z)
                    else:
                        length_s = exp(mean + longer_on + (plugged_on_ln if plugged else 0.0) + sd * z)
                else:
                    mean, sd = off_ln[part]
                    mean += longer_off
                    if plugged:
                        mean += plugged_ln
                    if t_s >= asleep_until_s:
                        _, asleep, asleep_until_s = at(t_s)
                    if asleep:
                        mean += asleep_ln
                    length_s = exp(mean + sd * z)
                t_s += length_s
                yield make(Switch, (is_on, length_s))


def _part(t_s: float, owner: Owner) -> int:
    return PART_OF_HOUR[int((t_s + owner.shift_s) % DAY_S // HOUR_S)]
