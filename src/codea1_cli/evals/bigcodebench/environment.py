"""The sandbox that BigCodeBench's tasks need: the libraries' own interpreter, how it is made and found, and what its
tests use around them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import check_writable, write_atomic
from codea1_cli.environment import cache_folder
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.sandbox.base import SandboxEnvironment

WARM = [
    "numpy",
    "pandas",
    "matplotlib.pyplot",
    "scipy.stats",
    "sklearn",
    "seaborn",
    "unittest.mock",
    "requests",
    "csv",
    "sqlite3",
    "logging",
    "glob",
    "shutil",
    "zipfile",
    "subprocess",
    "http.client",
    "urllib.request",
    "xml.etree.ElementTree",
]
FONTS = "share/codea1-matplotlib"
"""Below the environment: matplotlib's list of fonts, which takes seconds to make."""
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_DONE = "codea1-requirements"  # in a finished environment: the hash of what was installed
_ENV = {"TZ": "UTC", "MPLBACKEND": "Agg", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def interpreter(python: str) -> Path:
    """The interpreter with the links of its folder resolved, its own link kept: that one marks the environment.

    Raises:
        UserError: there is none.
    """
    found = Path(os.path.realpath(os.path.dirname(os.path.abspath(python)))) / os.path.basename(python)
    if not found.is_file():
        raise UserError(f"no interpreter {python}", hint="--sandbox-python ENV/bin/python")
    return found


def environment_key(python: str) -> str:
    """A hash of an interpreter and of the packages beside it, by name and version."""
    found = interpreter(python)
    packages = sorted(path.name for path in found.parent.parent.glob("lib/python*/site-packages/*.dist-info"))
    return hashlib.sha256("\n".join([str(found), os.path.realpath(found), *packages]).encode()).hexdigest()[:16]


def open_sandbox(options: ScoreOptions, warm: Sequence[str] = WARM) -> Any:
    """The sandbox for BigCodeBench, which runs unittest modules; `options.python` is the interpreter that has its
    libraries, `warm` what most tasks import.

    Files, loopback sockets and headless plots work in each program's own folder; time is UTC.

    Raises:
        UserError: the interpreter cannot be used.
        EnvironmentFault: it does not start, or a layer of `require` is missing.
    """
    from codea1_cli.sandbox.make import make_sandbox

    here = options.on_this_machine  # else the path is one on the service's machine
    found = interpreter(python_for(options.python)) if here else Path(options.python or "/usr/bin/python")
    fonts = found.parent.parent / FONTS
    env = {**_ENV, "PATH": f"{found.parent}:/usr/local/bin:/usr/bin:/bin"}
    if fonts.is_dir() or (not here and options.python):
        env["MPLCONFIGDIR"] = str(fonts)
    around = SandboxEnvironment(env=env, loopback=True, scratch_mb=512, proc=True, unit=True)
    python = str(found) if here else options.python
    return make_sandbox(options.of_sandbox(python=python, warm=warm, environment=around))


def python_for(given: str | None) -> str:
    """The interpreter for the tasks: the one that is given, else what `EnvironmentPlan.make` made, else ours."""
    made = environment_folder()
    return given or (str(made / "bin" / "python") if is_ready(made) else sys.executable)


def missing_libraries(python: str, libraries: Iterable[str]) -> frozenset[str]:
    """Which of these modules an interpreter does not find; none where it does not say, since the references will."""
    look = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if not u.find_spec(n)]))"
    words = [python, "-I", "-c", look, *sorted(libraries)]
    try:
        said = subprocess.run(words, capture_output=True, timeout=60, check=True)
        return frozenset(json.loads(said.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return frozenset()


# -- making it ---------------------------------------------------------------------------------------------------------
def environment_folder() -> Path:
    """Where the environment is made and looked for: in codea1's cache."""
    return cache_folder() / "bigcodebench"


def is_ready(folder: Path) -> bool:
    """Whether `folder` holds a finished environment with the libraries that are listed now."""
    try:
        done = (folder / _DONE).read_text(encoding="utf-8").strip() == _listed()
        return done and (folder / "bin" / "python").exists()
    except OSError:
        return False


def _listed() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


@dataclass(frozen=True)
class EnvironmentPlan:
    """How the environment is made: by uv where that is installed, else by `venv` and pip."""

    folder: Path
    tool: str
    base: str  # the interpreter that it is made with: a path, or a version that uv finds or brings
    libraries: int

    @property
    def python(self) -> Path:
        """The interpreter that it will have."""
        return self.folder / "bin" / "python"

    @property
    def is_found(self) -> bool:
        """Whether it lies where it is looked for."""
        return self.folder == environment_folder().resolve()

    def make(self) -> None:
        """Makes it, or completes what an interrupted call left. The tools' own output goes to stderr.

        Raises:
            EnvironmentFault: a step fails.
        """
        python, listed = str(self.python), ["-r", str(REQUIREMENTS)]
        if Path(self.tool).name == "uv":
            venv = [self.tool, "venv", "--no-project", "--allow-existing", "--python", self.base, str(self.folder)]
            install = [self.tool, "pip", "install", "--compile-bytecode", "--python", python, *listed]
        else:
            venv = [self.base, "-m", "venv", str(self.folder)]
            install = [python, "-m", "pip", "install", "--disable-pip-version-check", *listed]
        fonts = {"MPLCONFIGDIR": str(self.folder / FONTS)}
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        _run("the interpreter is not there", venv, {})
        _run("the libraries are not installed", install, {})
        _run("matplotlib does not work", [python, "-c", "import matplotlib.font_manager"], fonts)
        write_atomic(self.folder / _DONE, _listed() + "\n")


def plan_environment(folder: Path | None = None, wish: str = "3.10") -> EnvironmentPlan:
    """What would be made in `folder` (the place where it is found) with an interpreter: a version or a path.

    Raises:
        UserError: the wish is neither a version nor an interpreter; the folder holds something else.
        EnvironmentFault: there is neither uv nor an interpreter of that version; the folder cannot be written.
    """
    if not (re.fullmatch(r"3\.\d+(\.\d+)?", wish) or _is_python(wish)):
        raise UserError(
            f"--python {wish} is neither a version of Python 3 nor an interpreter", hint="such as 3.10, or its path"
        )
    if folder is not None and folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").is_file():
        raise UserError(f"--to {folder} holds other files", hint="give a new folder, or one that setup has begun")
    check_writable(folder or environment_folder(), "--to" if folder else "CODEA1_CACHE")
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    libraries = sum(bool(line.strip()) and not line.startswith("#") for line in lines)
    folder = (folder or environment_folder()).resolve()
    if uv := shutil.which("uv"):
        return EnvironmentPlan(folder, uv, _for_uv(uv, wish), libraries)
    base = shutil.which(wish) or shutil.which(f"python{wish}") or _of_pyenv(wish)
    if base is None:
        raise EnvironmentFault(
            f"there is neither uv nor Python {wish}",
            hint="install uv (https://docs.astral.sh/uv), which brings one, or name an interpreter: --python PATH",
        )
    return EnvironmentPlan(folder, "pip", base, libraries)


def _run(fault: str, words: list[str], more: dict[str, str]) -> None:
    try:
        status = subprocess.run(words, env={**os.environ, **more}, stdout=2, check=False).returncode
    except OSError as error:
        raise EnvironmentFault(f"cannot run {words[0]}: {error.strerror}", hint=_AGAIN) from None
    if status:
        raise EnvironmentFault(f"{fault}: {' '.join(words[:3])} ended with {status}, and says why above", hint=_AGAIN)


_AGAIN = "the same command goes on where it stopped; --python PATH names another Python 3.10"


def _for_uv(uv: str, wish: str) -> str:
    """What uv shall take for a wish such as 3.10: pyenv's newest, where uv itself finds none. A shim of pyenv's on PATH
    works only for the versions that are switched on, so uv does not see the others."""
    look = [uv, "python", "find", "--no-project", "--no-python-downloads", wish]
    if subprocess.run(look, capture_output=True, check=False).returncode == 0:
        return wish
    if own := _of_pyenv(wish):
        return own
    known = subprocess.run([uv, "python", "list", "--offline", wish], capture_output=True, check=False)
    if known.returncode == 0 and not known.stdout.strip():
        raise UserError(
            f"--python {wish}: uv knows no such version", hint="--python 3.10 is what the libraries are for"
        )
    return wish


def _is_python(word: str) -> bool:
    """Whether a word names an interpreter, as a path or on PATH, that runs and is Python 3."""
    look = [word, "-I", "-c", "import sys; print(sys.version_info[0])"]
    try:
        return subprocess.run(look, capture_output=True, timeout=60, check=False).stdout.strip() == b"3"
    except (OSError, subprocess.SubprocessError):
        return False


def _of_pyenv(wish: str) -> str | None:
    """pyenv's newest interpreter of a version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(pyenv.glob(f"versions/{wish}.*/bin/python"), key=lambda path: path.stat().st_mtime)
    return str(installed[-1]) if installed else None
