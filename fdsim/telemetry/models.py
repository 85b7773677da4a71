"""Global models on disk: a torch state dict per strategy, without pickled code.

RUN/models/strategy=<label>/final.pt, and round-<n>.pt with `telemetry.keep_models_every`. Without fdsim:

    net = torch.nn.Sequential(...)
    net.load_state_dict(torch.load("RUN/models/strategy=fdms/final.pt", weights_only=True))
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from fdsim.errors import RunFolderError
from fdsim.files import file_hash, write_whole

FOLDER = "models"


def model_name(round_index: int | None) -> str:
    """Return the name of the file of the global model after a round; None is the final one."""
    return "final.pt" if round_index is None else f"round-{round_index:08d}.pt"


def save_model(path: Path, state: dict[str, Any], *, temporary: Path) -> str:
    """Write a state dict and return the hash of the file."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getvalue(), temporary=temporary)
    return file_hash(path)


def load_model(path: Path, known_hash: str | None) -> dict[str, Any]:
    """Read a state dict whose bytes are those that were written; nothing in the file is run."""
    import torch

    if not path.is_file():
        raise RunFolderError(str(path), "the file of the global model is missing", "restore it from a copy")
    if known_hash is not None and file_hash(path) != known_hash:
        raise RunFolderError(str(path), "the file is damaged: its bytes are not those that were written")
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return found
