"""The sandbox that BigCodeBench's tasks need: the libraries' own interpreter, and what its tests use around them."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.errors import command as typed
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

    here = options.sandbox == "local"  # else the path is one on the service's machine
    found = interpreter(options.python or sys.executable) if here else Path(options.python or "/usr/bin/python")
    fonts = found.parent.parent / FONTS
    env = {**_ENV, "PATH": f"{found.parent}:/usr/local/bin:/usr/bin:/bin"}
    if fonts.is_dir() or (not here and options.python):
        env["MPLCONFIGDIR"] = str(fonts)
    around = SandboxEnvironment(env=env, loopback=True, scratch_mb=512, proc=True, unit=True)
    python = str(found) if here else options.python
    return make_sandbox(options.of_sandbox(python=python, warm=warm, environment=around))


REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main(argv: list[str] | None = None) -> int:
    """Makes the environment; returns uv's exit status where it fails."""
    parser = argparse.ArgumentParser(prog="python -m codea1_cli.evals.bigcodebench.environment", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--python", default="3.10", help="version or path of the interpreter (3.10)")
    arguments = parser.parse_args(argv)
    uv = shutil.which("uv")
    if uv is None:
        print("error: uv is not installed\nhint: https://docs.astral.sh/uv", file=sys.stderr)
        return 3
    folder = arguments.folder.resolve()
    python = str(folder / "bin" / "python")
    base = _interpreter(uv, arguments.python)
    steps: list[tuple[list[str], dict[str, str]]] = [
        ([uv, "venv", "--no-project", "--allow-existing", "--python", base, str(folder)], {}),
        ([uv, "pip", "install", "--compile-bytecode", "--python", python, "-r", str(REQUIREMENTS)], {}),
        ([python, "-c", "import matplotlib.font_manager"], {"MPLCONFIGDIR": str(folder / FONTS)}),
    ]
    for command, extra in steps:
        done = subprocess.run(command, env={**os.environ, **extra}, check=False)
        if done.returncode:
            print(f"error: {' '.join(command[:3])} failed with status {done.returncode}", file=sys.stderr)
            if not Path(python).exists():
                print("hint: name a Python 3.10 that is installed: --python PATH", file=sys.stderr)
            return done.returncode
    print(f"ready: {typed('eval-code', 'bigcodebench', '--sandbox-python', python)}")
    return 0


def _interpreter(uv: str, wish: str) -> str:
    """What uv shall take for a wish such as 3.10: pyenv's newest, where uv itself finds none. A shim of pyenv's on PATH
    works only for the versions that are switched on, so uv does not see the others."""
    found = subprocess.run(
        [uv, "python", "find", "--no-project", "--no-python-downloads", wish], capture_output=True, check=False
    )
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(pyenv.glob(f"versions/{wish}.*/bin/python"), key=lambda path: path.stat().st_mtime)
    return wish if found.returncode == 0 or not installed else str(installed[-1])


if __name__ == "__main__":
    raise SystemExit(main())
