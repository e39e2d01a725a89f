"""`python -m codea1_cli.evals.bigcodebench.make_env DIR`: an environment with the libraries of BigCodeBench's tasks.

Python 3.10 and the versions of `requirements.txt`, which are the benchmark's own with everything below them pinned as
well. Takes minutes and 3 GB. DIR must not lie below /tmp.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from codea1_cli.evals.bigcodebench.rootfs import FONTS

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main(argv: list[str] | None = None) -> int:
    """Makes the environment; returns uv's exit status where it fails."""
    parser = argparse.ArgumentParser(prog="python -m codea1_cli.evals.bigcodebench.make_env", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--python", default="3.10", help="version or path of the interpreter (3.10)")
    arguments = parser.parse_args(argv)
    uv = shutil.which("uv")
    if uv is None:
        print("error: uv is not installed\nhint: https://docs.astral.sh/uv", file=sys.stderr)
        return 3
    folder = arguments.folder.resolve()
    if folder.is_relative_to("/tmp"):
        print("error: the benchmark's programs need /tmp for themselves\nhint: another folder", file=sys.stderr)
        return 2
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
    print(f"ready: codea1 eval-code bigcodebench --sandbox-python {python}")
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
