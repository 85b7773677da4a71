"""The scenario: TOML text in, frozen tables out, with every mistake reported by place, problem and remedy."""

from __future__ import annotations

from fdsim.files import hash_of
from fdsim.scenario.tables import Scenario, load_scenario, parse_scenario

__all__ = ["Scenario", "hash_of", "load_scenario", "parse_scenario"]
