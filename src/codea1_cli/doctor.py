"""What a training run needs of this machine, checked without starting one."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from codea1_cli.durable import check_writable
from codea1_cli.engine.rehearsal import rehearse_commit
from codea1_cli.environment import KEEP, SYSTEM, cores, home, home_fault, installed_version, settle
from codea1_cli.errors import EnvironmentFault, counted
from codea1_cli.planning.gpu_assignment import Gpu, physical_gpus, visible_gpus
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.sandbox.make import SandboxOptions

# What `codea1 train` imports, and what it can do without.
REQUIRED = ("torch", "transformers", "trl", "ray", "accelerate", "datasets", "peft")
OPTIONAL = ("vllm", "sandbox-fusion")

# vLLM pins one torch; this says which vLLM to take while none is installed.
_VLLM_FOR_TORCH = {"2.11": "0.22 to 0.26", "2.13": "0.27 to 0.31"}

_CANARIES = ("right", "wrong", "lying", "raising", "looping", "exiting")
_NUMPY = "import numpy\n\ndef f(x):\n    return int(numpy.ones((64, 64)).dot(numpy.ones(64)).sum()) // 4096 + x\n"

_FREE_DISK_GB = 2.0
_SHM_GB = 1.0


class Health(StrEnum):
    """`BROKEN`: `codea1 train` cannot work. `WARNING`: it can, with what the detail says."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"
    INFO = "info"


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report; `data` holds the same for programs."""

    name: str
    status: Health
    detail: str
    hint: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


def diagnose(runs: Path, sandbox: SandboxOptions = SandboxOptions(workers=1)) -> list[Check]:
    """All checks, in the order in which a run would meet the trouble. `runs` is the folder of runs."""
    there = installed_versions()
    steps: list[tuple[str, Callable[[], list[Check]]]] = [
        ("python", lambda: [_python()]),
        ("packages", lambda: [*_packages(there), _fit(there)]),
        ("devices", lambda: _devices(there)),
        ("sandbox", lambda: sandbox_checks(sandbox)),
        ("disk", lambda: [_disk(runs), _shared_memory(Path("/dev/shm"))]),
        ("environment", lambda: [_home(), _environment()]),
    ]
    checks: list[Check] = []
    for name, step in steps:
        try:
            checks += step()
        except Exception as error:  # a doctor that falls ill helps nobody: the fault is a finding
            checks.append(Check(name, Health.BROKEN, f"could not be checked: {type(error).__name__}: {error}"))
    return checks


def installed_versions() -> dict[str, str | None]:
    """Version of each package that matters, None where it is not installed; nothing is imported."""
    return {name: installed_version(name) for name in (*REQUIRED, *OPTIONAL)}


def _python() -> Check:
    version = platform.python_version()
    data = {"python": version, "platform": platform.platform(), "cores": cores()}
    good = sys.version_info >= (3, 11) and SYSTEM == "Linux"
    detail = f"{version} on {SYSTEM} {platform.machine()}, {counted(cores(), 'core')}"
    hint = None if good else "training needs Linux and Python 3.11 or newer"
    return Check("python", Health.OK if good else Health.BROKEN, detail, hint, data)


def _packages(installed: dict[str, str | None]) -> list[Check]:
    checks = []
    for name, version in installed.items():
        if version is not None:
            checks.append(Check(name, Health.OK, version, data={"version": version}))
        elif name in REQUIRED:
            checks.append(Check(name, Health.BROKEN, "not installed", "uv sync", {"version": None}))
        else:
            checks.append(Check(name, Health.INFO, "not installed", _how_to_get(name, installed), {"version": None}))
    return checks


def _how_to_get(name: str, installed: dict[str, str | None]) -> str | None:
    if name != "vllm":
        return None
    release = ".".join((installed["torch"] or "").split(".")[:2])
    fits = _VLLM_FOR_TORCH.get(release)
    return "on GPUs: `uv sync --extra vllm`" + (f"; torch {release} goes with vLLM {fits}" if fits else "")


def _fit(installed: dict[str, str | None]) -> Check:
    """Whether the installed packages accept one another, by the ranges that each of them declares."""
    clashes = version_clashes(installed, metadata.requires)
    name = "torch, TRL and vLLM together"
    if clashes:
        return Check(name, Health.BROKEN, "; ".join(clashes), "uv sync", {"clashes": clashes})
    return Check(name, Health.OK, "their version ranges hold", data={"clashes": []})


def version_clashes(installed: dict[str, str | None], requires: Callable[[str], Sequence[str] | None]) -> list[str]:
    """Every requirement between installed packages that does not hold, as 'A 1 wants B >=2, and 1.5 is installed'.

    `requires(name)` gives a package's Requires-Dist lines.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    clashes = []
    for name in ("codea1", *(name for name, version in installed.items() if version)):
        try:
            lines = requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        # An extra counts when its package is there: trl[vllm] bounds the vLLM that TRL can drive.
        extras = ["", *(other for other, version in installed.items() if version)]
        for line in lines:
            try:
                wanted = Requirement(line)
            except InvalidRequirement:
                continue
            version = installed.get(wanted.name.lower().replace("_", "-"))
            if version is None or (wanted.marker and not any(wanted.marker.evaluate({"extra": e}) for e in extras)):
                continue
            if not wanted.specifier.contains(version, prereleases=True):
                shown = f"{name} {installed[name]}" if name in installed else name
                clashes.append(f"{shown} wants {wanted.name} {wanted.specifier}, and {version} is installed")
    return clashes


def _devices(installed: dict[str, str | None]) -> list[Check]:
    machine = physical_gpus()
    visible = visible_gpus(machine)
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    data = {"cuda_visible_devices": asked, "gpus": [asdict(gpu) for gpu in visible], "on_machine": len(machine)}
    if not visible:
        why = "none" if not machine else f"none of {len(machine)} visible: CUDA_VISIBLE_DEVICES={asked!r}"
        return [Check("GPUs", Health.INFO, f"{why}; training uses the CPU", data=data)]
    detail = ", ".join(_gpu_text(gpu) for gpu in visible)
    checks = [Check("GPUs", Health.OK, detail, data=data)]
    names = {gpu.name for gpu in visible if gpu.name}
    if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        hint = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or CUDA may number unlike GPUs in another order than the driver"
        checks.append(Check("GPU order", Health.WARNING, f"unlike GPUs: {', '.join(sorted(names))}", hint))
    if installed["torch"]:
        checks.append(_torch_cuda(len(visible)))
    return checks


def _gpu_text(gpu: Gpu) -> str:
    free = f" ({(gpu.memory_mb - gpu.used_mb) / 1024:.0f} GiB free)" if gpu.memory_mb else ""
    return f"{gpu.logical} -> {gpu.physical} {gpu.name}".rstrip() + free


def _torch_cuda(expected: int) -> Check:
    """Only on a machine with GPUs is torch imported: it alone knows whether its CUDA goes with the driver."""
    import torch

    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    data = {"torch_cuda": torch.version.cuda, "seen": seen}
    if seen == expected:
        return Check("torch on GPU", Health.OK, f"CUDA {torch.version.cuda}, {seen} visible", data=data)
    hint = "the driver may be older than torch's CUDA; nvidia-smi shows its version"
    detail = f"CUDA {torch.version.cuda}: torch sees {seen} of {counted(expected, 'GPU')}"
    return Check("torch on GPU", Health.BROKEN, detail, hint, data)


def _disk(runs: Path) -> Check:
    folder = runs.absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        check_writable(runs, "--runs")
    except EnvironmentFault as fault:
        return Check("runs folder", Health.BROKEN, fault.what, "set CODEA1_RUNS or --runs")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".codea1-doctor-") as place:
        try:
            rehearse_commit(RunDir(place))
        except EnvironmentFault as fault:
            return Check("runs folder", Health.BROKEN, fault.what.replace(place, str(folder)), fault.hint)
    free = shutil.disk_usage(folder).free / 1e9
    status = Health.OK if free >= _FREE_DISK_GB else Health.BROKEN
    hint = None if status is Health.OK else "free some, or set CODEA1_RUNS to another disk; `codea1 runs prune` helps"
    data = {"folder": str(runs.absolute()), "free_gb": round(free, 1)}
    return Check("runs folder", status, f"{runs.absolute()}: {free:.1f} GB free", hint, data)


def _home() -> Check:
    fault = home_fault()
    if fault is None:
        return Check("home folder", Health.OK, str(home()), data={"home": str(home())})
    hint = "a run keeps its caches in its own folder; for models of the hub set HF_HOME to a folder that can be written"
    return Check("home folder", Health.WARNING, fault, hint)


def _environment() -> Check:
    """Variables that would tell a process of ours what it is in another launcher's world."""
    names = settle()
    if not names:
        return Check("environment", Health.OK, "no variables of other launchers", data={"set_aside": []})
    detail = f"set aside for every run: {', '.join(names)}"
    return Check("environment", Health.INFO, detail, f"{KEEP}=NAME,... passes them on", {"set_aside": names})


def _shared_memory(folder: Path) -> Check:
    if not folder.is_dir():
        return Check("shared memory", Health.WARNING, f"no {folder}", "Ray falls back to slow files in /tmp")
    free = shutil.disk_usage(folder).free / 1e9
    good = free >= _SHM_GB
    hint = None if good else "in a container: start it with a larger --shm-size"
    data = {"free_gb": round(free, 2)}
    return Check("shared memory", Health.OK if good else Health.WARNING, f"{folder}: {free:.1f} GB free", hint, data)


def sandbox_checks(options: SandboxOptions = SandboxOptions(workers=1)) -> list[Check]:
    """The verdicts of the canary programs, numpy under the default limits, and the layers of isolation.

    A wrong verdict is broken, and so is a service that does not answer; a missing layer or numpy is a warning.
    """
    from codea1_cli.judging.canaries import JUDGED, REFERENCE, verdicts_of_canaries
    from codea1_cli.judging.judge import Judge
    from codea1_cli.sandbox.base import Limits
    from codea1_cli.sandbox.make import make_sandbox
    from codea1_cli.sandbox.verdicts import Verdict

    try:
        opened = closing(make_sandbox(options))
    except EnvironmentFault as fault:
        return [Check("sandbox", Health.BROKEN, fault.what, fault.hint)]
    with opened as sandbox:
        judge = Judge(sandbox, limits=Limits(time_s=1.0))
        found = verdicts_of_canaries(judge, _CANARIES)
        wrong = [
            f"{name} program: {verdict}, not {' or '.join(JUDGED[name].verdicts)}"
            for name, verdict in found.items()
            if verdict not in JUDGED[name].verdicts
        ]
        data = {"verdicts": {name: str(verdict) for name, verdict in found.items()}}
        if wrong:
            hint = "`codea1 sandbox check` says more" if options.on_this_machine else None
            return [Check("sandbox", Health.BROKEN, "; ".join(wrong), hint, data)]
        checks = [Check("sandbox", Health.OK, f"{counted(len(found), 'canary program')} judged rightly", data=data)]
        expected = judge.expected(REFERENCE, "f", ["f(1)"])
        numpy = judge.check(_NUMPY, "f", ["f(1)"], expected).verdicts["f(1)"]
        if numpy.verdict is not Verdict.PASSED:
            detail = f"a program that imports numpy: {numpy.verdict}: {numpy.got}"
            checks.append(Check("numpy in the sandbox", Health.WARNING, detail, "uv sync, or set sandbox.python"))
        checks.append(_layers(sandbox.layers))
        return checks


def _layers(layers: dict[str, str]) -> Check:
    missing = {name: why for name, why in layers.items() if why}
    data = {"layers": {name: why or "works" for name, why in layers.items()}}
    if not missing:
        return Check("sandbox layers", Health.OK, ", ".join(layers), data=data)
    detail = "missing: " + ", ".join(f"{name} ({why})" for name, why in missing.items())
    hint = "candidates are held by the others; sandbox.require makes a layer compulsory"
    return Check("sandbox layers", Health.WARNING, detail, hint, data)
