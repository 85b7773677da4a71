"""C kernels of our own on a CPU: compiled at first use, proven in a process of their own, and kept for the next time."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from fdsim.files import UnfinishedFile

log = logging.getLogger("fdsim.learning")

#: Where headers are that sources of any folder may include.
_HEADERS = Path(__file__).parent
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-pthread")
#: Lets a kernel share the threads of torch; not every compiler knows it.
_SHARED_THREADS = "-fopenmp"
#: How long a compiler may take to say its version, and to compile, s.
_VERSION_S, _COMPILE_S = 10.0, 120.0
_NUMBERS = {torch.float32: (), torch.float64: ("-DT=double", "-DWHOLE=int64_t")}


def load(
    source: Path, dtype: torch.dtype, *, prover: str, purpose: str, threads: bool = False
) -> ctypes.CDLL | None:
    """Return a kernel for a type of numbers, or None where it cannot be compiled or does not work.

    It is compiled in a few seconds, once for each machine. The module `prover` has a function `prove` that holds a
    library against torch; `purpose` says in messages what the kernel computes. One that has `threads` of its own
    shares those of torch where the compiler can be told so.
    """
    compiler = _compiler()
    if compiler is None:
        log.info("no C compiler: %s are torch's own", purpose)
        return None
    try:
        return _loaded(compiler, source, dtype, prover, threads=threads)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(
            *("the kernel for %s could not be compiled, torch's own are used: %s%s", purpose, error),
            _told(error),
        )
        return None


def _compiler() -> list[str] | None:
    """Return the words of the compiler's command; $CC may hold options too, as in "gcc -m64"."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


def _told(error: Exception) -> str:
    """Return the last line that a failed program wrote."""
    lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
    return f" ({lines[-1]})" if lines else ""


def _loaded(
    compiler: list[str], source: Path, dtype: torch.dtype, prover: str, *, threads: bool
) -> ctypes.CDLL:
    """Load the kernel from the cache, or compile, prove, load and keep it."""
    plain = (*_FLAGS, *_NUMBERS[dtype])
    choices = [(*plain, _SHARED_THREADS), plain] if threads else [plain]
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True, timeout=_VERSION_S)
    headers = sorted({*source.parent.glob("*.h"), *_HEADERS.glob("*.h")})
    about = [source.read_bytes(), *(header.read_bytes() for header in headers)]
    about += [version.stdout, *(word.encode() for word in compiler)]
    about += [platform.machine().encode(), _processor().encode()]
    names = {flags: _name(source, [*about, *(flag.encode() for flag in flags)]) for flags in choices}
    cache_folder = _cache_folder()
    for name in names.values():
        kept = None if cache_folder is None else _kept(cache_folder, name)
        if kept is not None:
            return ctypes.CDLL(str(kept))
    # What is loaded stays in memory when its file is removed, so that nothing is left where no cache can be written.
    with tempfile.TemporaryDirectory(prefix="fdsim-", ignore_cleanup_errors=True) as scratch:
        for flags, name in names.items():
            fresh = Path(scratch) / f"{name}.so"
            command = [*compiler, *flags, "-I", str(_HEADERS), str(source), "-o", str(fresh), "-lm"]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_S)
                _prove(fresh, dtype, prover)
                break
            except subprocess.CalledProcessError:
                if flags == plain:
                    raise
        library = ctypes.CDLL(str(fresh))
        if cache_folder is not None:
            with suppress(OSError), UnfinishedFile(cache_folder / f"{name}-{_sum(fresh)}.so") as waiting:
                shutil.copyfile(fresh, waiting)
    return library


def _name(source: Path, about: list[bytes]) -> str:
    """Name a library after all that it depends on."""
    return f"{source.stem}-" + hashlib.sha256(b"\n".join(about)).hexdigest()[:16]


def _cache_folder() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fdsim"
    except RuntimeError:  # nobody's home
        return None


def _kept(folder: Path, name: str) -> Path | None:
    """Return the library in the cache whose bytes have the checksum in its name; damaged ones are removed."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        with suppress(OSError):
            if path.stem == f"{name}-{_sum(path)}":
                return path
            log.warning("%s is damaged, and compiled again", path)
            path.unlink()
    return None


def _sum(path: Path) -> str:
    """Return a checksum of a file. To load a damaged library would end the process, without a word."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _prove(library: Path, dtype: torch.dtype, prover: str) -> None:
    """Try a fresh kernel in a process of its own: an instruction that this processor lacks ends that one, not ours."""
    here = str(Path(__file__).resolve().parents[2])
    code = f"from {prover} import prove; prove({str(library)!r}, {str(dtype).removeprefix('torch.')!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), here])}
    subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=True,
        capture_output=True,
        timeout=_COMPILE_S,
        env=environment,
    )


def _processor() -> str:
    """Name the processor: the kernel is compiled for exactly this one."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
