"""Trials of a study that divide the same data in the same way, as those of a grid mostly do, divide them once."""

from __future__ import annotations

from fdsim.catalogue import is_own
from fdsim.prepare import Divided, divide, divide_to_check
from fdsim.scenario import Scenario, hash_of

#: More than a study has seeds, mostly; seeds come innermost, so that the trials of one seed are that far apart.
_MOST_KEPT = 64
#: Larger ones, of two megabytes or more, would fill the memory before they saved any time.
_MOST_ROWS = 2**18


class SharedDivisions:
    """Divides the data of one trial after another, and keeps the last divisions for those that have the same."""

    def __init__(self, *, to_check: bool = False) -> None:
        self._to_check = to_check
        self._kept: dict[str, Divided] = {}

    def of(self, scenario: Scenario) -> Divided:
        """Return a trial's data, divided among its clients."""
        key = self._key(scenario)
        divided = self._kept.pop(key, None)
        if divided is None:
            divided = divide_to_check(scenario) if self._to_check else divide(scenario)
        if len(divided.indices.rows) <= _MOST_ROWS:
            # At the end, being the last that was used; the first is the one that nobody has used for longest.
            self._kept[key] = divided
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return divided

    def _key(self, scenario: Scenario) -> str:
        """Return a hash of all that a division depends on."""
        # Strategies of the user's own may look at who holds what; all others ask only how much.
        own = any(is_own(strategy) for strategy in scenario.strategies)
        any_seed = self._to_check and not own and not scenario.data.partition.may_fail_by_chance()
        about = {
            "data": scenario.data.model_dump(mode="json"),
            "seed": None if any_seed else scenario.seed,
            "clients": scenario.clients,
            "groups": [group.count for group in scenario.fleet],
            "coupling": scenario.coupling,
            "own": own,
        }
        return hash_of(about)
