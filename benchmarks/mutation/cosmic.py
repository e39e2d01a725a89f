"""Running cosmic-ray itself: one session in a folder of its own, its tests by pytest, its outcome a mutant."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from suites import test_module

CONFIG = """[cosmic-ray]
module-path = "mod.py"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider {plugins} test_mod.py"

[cosmic-ray.distributor]
name = "local"
"""
# Plugins that happen to be installed beside pytest cost each of its starts a good part; none of them is needed.
PLUGINS = "-p no:xdist -p no:timeout -p no:cov -p no:hypothesispytest -p no:anyio -p no:typeguard"


@dataclass(frozen=True)
class Session:
    """`killed` by (operator, occurrence); `seconds` of `cosmic-ray exec` alone."""

    killed: dict[tuple[str, int], bool]
    seconds: float


def run_session(folder: Path, code: str, entry_point: str, tests: list[str], timeout: float = 10.0) -> Session:
    """One session of all mutants of `code`, killed when any of `tests` fails.

    Raises:
        subprocess.CalledProcessError: cosmic-ray itself failed.
    """
    folder.mkdir(parents=True)
    (folder / "mod.py").write_text(code, encoding="utf-8")
    (folder / "test_mod.py").write_text(test_module(entry_point, tests), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    config = CONFIG.format(timeout=timeout, python=sys.executable, plugins=PLUGINS)
    (folder / "session.toml").write_text(config, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cosmic-ray"))]
    subprocess.run([*command, "init", "session.toml", "session.sqlite"], cwd=folder, check=True, capture_output=True)
    began = time.monotonic()
    subprocess.run([*command, "exec", "session.toml", "session.sqlite"], cwd=folder, check=True, capture_output=True)
    return Session(_outcomes(folder / "session.sqlite"), time.monotonic() - began)


def _outcomes(session: Path) -> dict[tuple[str, int], bool]:
    from cosmic_ray.work_db import WorkDB, use_db

    with use_db(str(session), WorkDB.Mode.open) as database:
        items = {item.job_id: item.mutations[0] for item in database.work_items}
        return {
            (items[job].operator_name, items[job].occurrence): bool(result.is_killed)
            for job, result in database.results
        }
