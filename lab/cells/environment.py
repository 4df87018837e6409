"""What ran a cell: versions, machine, code. Everything is found without importing jax."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from lab.records import Device, Environment
from lab.worker import PACKAGE_ROOT

# Flags that change what jax and XLA do. Values are recorded; nothing else of the environment is.
_FLAG_NAMES = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
)


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def code_sha256() -> str:
    """The identity of the code: the package's files plus the versions of jax, jaxlib and libtpu."""
    digest = hashlib.sha256()
    package = PACKAGE_ROOT / "lab"
    for path in sorted(package.rglob("*.py")) + sorted(package.rglob("*.json")):
        relative = path.relative_to(package)
        digest.update(f"{relative.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    for name in ("jax", "jaxlib", "libtpu"):
        digest.update(f"{name}={version(name)}\0".encode())
    return digest.hexdigest()


@functools.cache
def cpu_model() -> str:
    """What the processor of this machine calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(PACKAGE_ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def _commit() -> tuple[str | None, bool | None]:
    # An installed wheel inside somebody else's repository must not claim that repository's commit.
    if not (PACKAGE_ROOT / "conf" / "config.yaml").is_file():
        return None, None
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _governor() -> str | None:
    """The frequency governor of the first processor; None where the kernel shows none."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def describe(device: Device) -> Environment:
    """The environment of a record; `device` comes from the worker that saw it."""
    commit, dirty = _commit()
    return Environment(
        python=platform.python_version(),
        jax=version("jax"),
        jaxlib=version("jaxlib"),
        libtpu=version("libtpu"),
        hydra=version("hydra-core") or "unknown",
        omegaconf=version("omegaconf") or "unknown",
        numpy=version("numpy") or "unknown",
        platform=device.platform,
        device_kind=device.device_kind,
        device_count=device.device_count,
        cpu_model=cpu_model(),
        cpu_count=os.cpu_count() or 1,
        commit=commit,
        dirty=dirty,
        flags={name: os.environ[name] for name in _FLAG_NAMES if os.environ.get(name)},
        memory_bytes=_memory_bytes(),
        governor=_governor(),
        matmul_precision=device.matmul_precision,
    )
