"""The JSON Schema of study files: a scenario's, in which everything may be left to the base, and a [study] table."""

from __future__ import annotations

from typing import Any

from fdsim.scenario.schema import scenario_schema
from fdsim.studies.study_file import StudyTable


def study_schema() -> dict[str, Any]:
    """Return the schema of a whole study file."""
    schema, study = scenario_schema(), StudyTable.model_json_schema()
    schema["$defs"].update(study.pop("$defs", {}))
    for swept in ("grid", "zip", "cases"):
        # Dotted keys of TOML are nested tables before they are flattened, so any depth is right here.
        about = study["properties"][swept]
        study["properties"][swept] = {"type": "object", "description": about["description"]}
    schema["properties"]["study"] = {
        **study,
        "description": "what varies, and how often each variant is repeated",
    }
    schema["required"] = ["study"]
    schema["title"] = "Study"
    return schema
