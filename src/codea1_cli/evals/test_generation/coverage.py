"""Lines and branches covered, from the arcs that tests took: coverage.py's own analysis, made in the parent.

Only pairs of line numbers come out of the sandbox, so that no test can say more than which lines it claims.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codea1_cli.errors import EnvironmentFault
from codea1_cli.extract.source import PARSER

_NAME = "function_under_test.py"
# coverage.py parses the source: that Python finds its style odd is no news for the user.
warnings.filterwarnings("ignore", module=".*function_under_test$")


@dataclass(frozen=True)
class Covered:
    """Counts of one function's source: executed lines of all statements, taken branches of all."""

    lines: int
    all_lines: int
    branches: int
    all_branches: int


def covered(source: str, arcs: Iterable[tuple[int, int]]) -> Covered:
    """What `arcs` (from line, to line, as coverage.py records them) cover of `source`.

    Raises:
        EnvironmentFault: coverage is not installed.
    """
    try:
        from coverage import Coverage
    except ImportError as error:
        raise EnvironmentFault(
            f"coverage figures need coverage.py: {error}", hint="install the package `coverage` beside codea1"
        ) from None
    last = source.count("\n") + 1
    sound = {(a, b) for a, b in arcs if abs(a) <= last and abs(b) <= last}
    with PARSER, tempfile.TemporaryDirectory(prefix="codea1-coverage-") as folder:  # coverage.py parses the source
        file, report = Path(folder) / _NAME, Path(folder) / "report.json"
        file.write_text(source, encoding="utf-8")
        cover = Coverage(data_file=None, branch=True, include=[str(file)], config_file=False, messages=False)
        cover.get_data().add_arcs({str(file): sound})
        cover.get_data().touch_file(str(file))
        cover.json_report(morfs=[str(file)], outfile=str(report))
        totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return Covered(*(int(totals[name]) for name in names))
