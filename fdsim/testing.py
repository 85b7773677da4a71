"""Contracts of the families, to run on a class of your own.

    from fdsim.testing import check_connectivity
    from my_models import Commuter

    def test_commuter() -> None:
        check_connectivity(Commuter(tunnel_s=900))

Each check raises `ContractError`, which says what was promised and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.catalogue import Component, named
from fdsim.devices.models.battery import Battery, Flow
from fdsim.devices.models.compute import Compute
from fdsim.devices.models.connectivity import Connectivity
from fdsim.devices.models.habits import Habits, Owner
from fdsim.devices.models.selection import Selection
from fdsim.devices.models.spells import Switch
from fdsim.devices.models.usage import Usage
from fdsim.errors import ContractError as ContractError
from fdsim.errors import RunError, ScenarioError
from fdsim.participation.base import Participation, ParticipationSetting
from fdsim.rng import stream
from fdsim.strategies.base import Federation, Strategy
from fdsim.trace import NONE, Network, Outcome, Phase, TraceRound, blank_round
from fdsim.workload import NetCost

if TYPE_CHECKING:
    import torch

    from fdsim.learning.engine import Learner, Task
    from fdsim.learning.round import Round

_SPELLS = 200
#: The federation in which strategies are checked.
_CLIENTS, _CIRCLES, _PARAMETERS = 8, 2, 6


def _must(kept: bool, promise: str, found: object = "") -> None:
    if not kept:
        raise ContractError(promise + (f", but: {found}" if found != "" else ""))


def _is_number(answer: object) -> bool:
    return isinstance(answer, int | float | np.number) and not isinstance(answer, bool)


def _same_twice(draw: Callable[[np.random.Generator], Iterable[object]], what: str) -> None:
    first, second = (list(islice(draw(stream(7, "contract")), 20)) for _ in range(2))
    _must(first == second, f"{what} depends on nothing but its fields and the generator it is given")


def check_battery(battery: Battery) -> None:
    """Check that the charge stays between empty and full, moves the right way, and meets a level when `time_to_level` says."""
    full_j = battery.full_j(0.0)
    _must(_is_number(full_j), "full_j returns a number", full_j)
    _must(0.0 < full_j < math.inf, "full_j is positive and finite", full_j)
    _must(battery.full_j(100.0 * full_j) <= full_j, "a battery does not grow with age")
    for plugged in (False, True):
        for load_w in (0.0, 0.3, 2.0, 6.0):
            flow = Flow(load_w, plugged, full_j)
            for soc in (0.0, 0.1, 0.5, 0.79, 0.8, 0.9, 0.995, 1.0):
                _check_flow(battery, soc * full_j, flow)


def _check_flow(battery: Battery, charge_j: float, flow: Flow) -> None:
    where = f"charge {charge_j / flow.full_j:.1%}, {flow}"
    last_j = charge_j
    for time_s in (0.0, 1.0, 60.0, 3_600.0, 86_400.0):
        after_j = battery.after(charge_j, time_s, flow)
        _must(_is_number(after_j), "after returns a number", f"{where}: {after_j!r}")
        _must(0.0 <= after_j <= flow.full_j * (1 + 1e-12), "the charge stays between empty and full", where)
        _must(time_s > 0 or after_j == charge_j, "no time changes nothing", where)
        if not flow.plugged:
            _must(after_j <= last_j, "an unplugged battery never gains", where)
        half_j = battery.after(battery.after(charge_j, time_s / 3, flow), time_s * 2 / 3, flow)
        _must(math.isclose(half_j, after_j, rel_tol=1e-9, abs_tol=1e-9 * flow.full_j), "time adds up", where)
        last_j = after_j
    for level in (0.0, 0.15, 0.5, 0.85, 1.0):
        level_j = level * flow.full_j
        time_s = battery.time_to_level(charge_j, level_j, flow)
        _must(_is_number(time_s), "time_to_level returns a number", f"{where}: {time_s!r}")
        _must(time_s >= 0.0, "time_to_level is not negative", f"{where}: {time_s}")
        if time_s < 1e8:
            found_j = battery.after(charge_j, time_s, flow)
            close = math.isclose(found_j, level_j, rel_tol=1e-6, abs_tol=1e-6 * flow.full_j)
            _must(
                close,
                f"the level {level:.0%} is met when time_to_level says",
                f"{where}: {found_j / flow.full_j:.3%}",
            )


def _check_switches(spells: Iterable[Switch], what: str) -> None:
    for on, length_s in islice(spells, _SPELLS):
        _must(isinstance(on, bool | np.bool_), f"{what} is on or off", on)
        _must(length_s > 0.0, f"a spell of the {what} has a length above 0", length_s)


def check_connectivity(link: Connectivity) -> None:
    """Check that spells have positive lengths, and online ones a network with rates."""
    link = link.for_device(0, 7)
    for spell in islice(link.follow(stream(7, "contract"), StillPhone()), _SPELLS):
        _must(spell.length_s > 0.0, "a spell has a length above 0", spell)
        if spell.online:
            _must(spell.network != Network.none, "an online spell has a network", spell)
            _must(
                spell.down_bps > 0 and spell.up_bps > 0 and spell.rtt_s >= 0,
                "an online spell has rates",
                spell,
            )
    _same_twice(lambda rng: link.follow(rng, StillPhone()), "connectivity")


class StillPhone:
    """A device to which nothing happens, half charged and off its charger, for models that look at one."""

    def __init__(self) -> None:
        self.t_s, self.soc, self.on_charger, self.screen_on = 0.0, 0.5, False, False
        self.owner = Owner(Habits(), stream(7, "owner"))

    def soc_after(self, soc: float, time_s: float, *, lit_frac: float, plugged: bool) -> float:
        """Return the same state of charge."""
        return soc

    def begin_at(self, soc: float) -> None:
        """Stay half charged."""


def check_usage(usage: Usage) -> None:
    """Check that spells of screen and charger have positive lengths."""
    usage = usage.for_device(0, 7)
    _check_switches(usage.screen(stream(7, "contract"), StillPhone()), "screen")
    _check_switches(usage.charger(stream(7, "charger"), StillPhone()), "charger")
    _same_twice(lambda rng: usage.charger(rng, StillPhone()), "the charger")
    _same_twice(lambda rng: usage.screen(rng, StillPhone()), "the screen")


def check_compute(compute: Compute) -> None:
    """Check that more work takes longer, speeds are positive, and heat never makes a device faster."""
    cost = NetCost(forward_flops=1e6, depthwise_frac=0.2, parameters=1000)
    for client in range(20):
        _must(0.0 < compute.speed(stream(7, client)) < math.inf, "speed is positive and finite")
        _must(0.0 <= compute.load(stream(7, client)) < 1.0, "background load lies in [0, 1)")
    _must(compute.work(cost, 0) == 0.0, "no samples are no work")
    _must(0.0 < compute.work(cost, 10) < compute.work(cost, 20), "more samples are more work")
    hot_s, last = 0.0, math.inf
    for _ in range(20):
        pace, steady_s = compute.pace(hot_s)
        _must(0.0 < pace <= last, "the pace is positive and does not rise with heat", pace)
        _must(steady_s > 0.0, "a pace holds for some time", steady_s)
        if steady_s == math.inf:
            return
        hot_s, last = hot_s + steady_s, pace


def check_selection(selection: Selection, clients: Sequence[int] = (1, 7, 100)) -> None:
    """Check that the target lies in 1..K, and that at most as many as wanted are selected, candidates only, each once."""
    for count in clients:
        target, everybody = selection.target_of(count), np.arange(count)
        for candidates in (everybody, everybody[::2], everybody[:0]):
            for wanted in (target, math.ceil(1.3 * target)):
                selection.selected_from(candidates, min(wanted, len(candidates)), stream(7, "contract"))


#: Family → the check of its contract that a run makes of a class of the user's own.
CHECKS: dict[str, Callable[..., None]] = {
    "battery": check_battery,
    "connectivity": check_connectivity,
    "usage": check_usage,
    "compute": check_compute,
    "selection": check_selection,
}


def check_own(component: Component, place: str, clients: int) -> None:
    """Check a device model or selection of the user's own; the error names its place, class and file."""
    check = CHECKS[component.family]
    sizes = [[clients]] if component.family == "selection" else []
    try:
        check(component, *sizes)
    except ContractError as error:
        problem = str(error).removeprefix(f"{named(component)}: ")
        raise ScenarioError(
            place,
            f"{named(component)} does not keep the contract of a {component.family}: {problem}",
            f"fdsim.testing.{check.__name__} is the check, for tests of your own",
        ) from None


def check_participation(source: Participation, rounds: int = 5) -> None:
    """Check that each round has one outcome per client, a cause for every dropout, and a start not before the last."""
    setting = ParticipationSetting(rounds, 7, 60.0, np.arange(source.client_count) % 2)
    made = list(source.rounds(setting))
    _must(len(made) == rounds, f"{rounds} rounds are made when {rounds} are requested", len(made))
    for index, r in enumerate(made):
        _must(r.round == index, "rounds count up from 0", r.round)
        _must(r.clients == source.client_count, "every client has a row", r.clients)
        _must(bool(np.isin(r.outcome, list(Outcome)).all()), "every client has an outcome")
        _must(
            bool(((r.cause != NONE) == (r.outcome == Outcome.dropped)).all()),
            "dropouts, and only they, have a cause",
        )
        reached = r.phase[r.outcome == Outcome.completed]
        _must(bool((reached == Phase.upload).all()), "clients that completed reached the upload")
        _must(index == 0 or r.round_start_s >= made[index - 1].round_start_s, "time goes on")
    again = list(source.rounds(setting))
    same = all(np.array_equal(a.outcome, b.outcome) for a, b in zip(made, again, strict=True))
    _must(same, "the same setting gives the same rounds")


def check_strategy(strategy: Strategy) -> None:
    """Check a strategy on a few small cohorts: states can be checkpointed, blends agree, a resumed run is the same.

    Cohorts are whole, thinned out, down to one client, empty, and parts of the federation. That blends agree means: the
    global update misses the true one by no more than the clients' substitutes miss theirs.
    """
    cohorts = _small_cohorts()
    task = _small_task(len(cohorts))
    try:
        learner, rounds = _learned(strategy, task, cohorts, None)
        for made in rounds:
            _check_errors(made, task.federation)
        for stop in range(1, len(cohorts)):
            half, _ = _learned(strategy, task, cohorts[:stop], None)
            resumed, _ = _learned(strategy, task, cohorts, _checkpointed(half))
            same = bool((resumed.params == learner.params).all())
            _must(same, f"resumed after round {stop - 1}, a run learns the same as without a break")
    except RunError as error:
        raise ContractError(str(error)) from error


def _small_cohorts() -> list[TraceRound]:
    """Return rounds in which some clients (by their digit) completed (c), dropped out (d) or were not selected (-)."""
    codes = {"c": Outcome.completed, "d": Outcome.dropped, "-": Outcome.not_selected}
    made = []
    for index, row in enumerate(
        ("ccdcdccc", "cccccccc", "cdcdcdcc", "dddddddd", "ddddcddd", "cd-cc-d-", "dccdcccd", "dccddccc")
    ):
        blank = blank_round(index, _CLIENTS, 60.0 * index, 60.0 * index + 60.0)
        blank.outcome[:] = [codes[each] for each in row]
        made.append(blank)
    return made


def _small_task(rounds: int) -> Task:
    import torch

    from fdsim.learning.config.training import Training
    from fdsim.learning.engine import Task
    from fdsim.telemetry.config import Telemetry

    weight = np.arange(1.0, _CLIENTS + 1)
    federation = Federation(
        clients=_CLIENTS,
        rounds=rounds,
        parameters=_PARAMETERS,
        seed=7,
        client_weight=weight / weight.sum(),
        true_cluster=np.arange(_CLIENTS) % _CIRCLES,
        accelerator=torch.device("cpu"),
        dtype=torch.float64,
    )
    telemetry = Telemetry.model_validate({"counterfactual": True})
    return Task(_Quadratics(), federation, Training(local_steps=1), telemetry)


class _Quadratics:
    """A trainer whose clients pull the parameters towards points of their own, clients of a circle to near ones."""

    def __init__(self) -> None:
        rng = stream(7, "contract")
        centres = rng.normal(size=(_CIRCLES, _PARAMETERS))[np.arange(_CLIENTS) % _CIRCLES]
        self.targets = centres + 0.1 * rng.normal(size=(_CLIENTS, _PARAMETERS))

    def initial(self) -> torch.Tensor:
        import torch

        return torch.zeros(_PARAMETERS, dtype=torch.float64)

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Any:
        import torch

        from fdsim.learning.trainer import Chunk

        noise = stream(7, "noise", round_index).normal(size=self.targets.shape)
        for part in np.array_split(clients, 2 if len(clients) > 1 else 1):
            pull = torch.from_numpy((self.targets + 0.1 * noise)[part]) - start
            yield Chunk(part, 0.1 * pull, pull.square().sum(dim=1))

    def evaluate(self, params: torch.Tensor) -> Any:
        from fdsim.learning.trainer import Evaluation

        return Evaluation(0.0, 0.0, np.zeros(_CIRCLES), np.zeros((_CLIENTS, _CIRCLES)))

    def named(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"params": params}


def _learned(
    strategy: Strategy, task: Task, trace: list[TraceRound], learner: Learner | None
) -> tuple[Learner, list[Round]]:
    """Take a learner, a new one if there is none, through what is left of a trace, with a look at each state."""
    from fdsim.learning.engine import begin, learn
    from fdsim.telemetry.checkpoint import unstorable

    # As a process that resumes would have it: what a strategy keeps outside its state is gone.
    strategy = strategy.model_copy(deep=True)
    learner = learner or begin(strategy, task)
    rounds = []
    _must((told := unstorable(learner.strategy_state)) is None, "a checkpoint can hold the state", told)
    for made in learn(strategy, task, trace, learner):
        _must((told := unstorable(learner.strategy_state)) is None, "a checkpoint can hold the state", told)
        rounds.append(made)
    return learner, rounds


def _checkpointed(learner: Learner) -> Learner:
    """Write a learner to a checkpoint and read it again."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from fdsim.learning.engine import Learner
    from fdsim.telemetry.checkpoint import last_good, save

    with TemporaryDirectory() as place:
        folder = Path(place)
        save(folder, learner.as_state(), learner.next_round, temporary=folder)
        found = last_good(folder)
        _must(found is not None, "a checkpoint can be read again")
        return Learner.from_state(found.state() if found else {}, parameters=_PARAMETERS)


def _check_errors(made: Round, federation: Federation) -> None:
    """Compare the error of the global update with those of its substitutes, where all clients were selected."""
    error = made.row.substitution_error
    if error is None or made.row.clients_selected < federation.clients:
        return
    each = np.sqrt(np.nan_to_num(made.clients.substitution_error))
    most = float(federation.client_weight @ each) ** 2
    _must(
        error <= most * (1 + 1e-6) + 1e-12,
        f"the global update errs by no more than its substitutes ({most:.4g}, round {made.row.round})",
        f"{error:.4g}",
    )
