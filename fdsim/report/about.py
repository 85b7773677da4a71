"""What made the result: the scenario in full, versions and hashes."""

from __future__ import annotations

from fdsim.report.data import RunData
from fdsim.report.figure import Listing
from fdsim.report.study_data import StudyData


def scenario_listing(data: RunData) -> Listing:
    """List what one needs to make the run again and to check that it is the same."""
    manifest = data.run.manifest
    facts = [
        ("scenario", data.name),
        ("seed", str(manifest.get("seed", ""))),
        ("scenario hash", str(manifest.get("scenario_hash", ""))),
        ("trace hash", str(manifest.get("trace_hash") or "none yet")),
        ("status", data.run.status),
        ("accelerator", str(manifest.get("accelerator") or "none yet")),
        ("started, ended", f"{manifest.get('started_at', '')}, {manifest.get('ended_at') or 'not yet'}"),
    ]
    versions = manifest.get("versions") or {}
    facts.append(("versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    text = (data.run.path / "scenario.toml").read_text(encoding="utf-8")
    return Listing(
        "The scenario, versions and hashes",
        "Everything this run depends on, every default spelt out.",
        facts,
        text,
    )


def study_listing(study: StudyData) -> Listing:
    """List a study's trials and its resolved file."""
    facts = [
        ("study", study.name),
        ("fdsim", str(study.about.get("fdsim", ""))),
        ("swept", ", ".join(map(str, study.about.get("swept", []))) or "seeds only"),
        ("last change", str(study.about.get("updated_at", ""))),
    ]
    facts += [
        (
            f"trial {trial['id']}",
            f"{trial['status']}, scenario {trial['scenario_hash']}, in {trial['folder']}",
        )
        for trial in study.trials
    ]
    path = study.folder / "study.toml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return Listing("The study, its trials and hashes", "Every trial is an ordinary run folder.", facts, text)
