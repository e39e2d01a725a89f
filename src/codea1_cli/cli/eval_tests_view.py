"""What `codea1 eval-tests` shows: figures with their protocol named, functions, survivors, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.cli import console
from codea1_cli.evals.test_generation.results import Difference


def show_ult(found: dict[str, Any], table: bool) -> None:
    """The figures of each protocol, and every function where asked."""
    for protocol, figures in found["protocols"].items():
        _figures(protocol, figures, found)
        if table:
            _functions(protocol, found["functions"][protocol])
    for name, fault in found["not_loading"].items():
        console.note(console.printable(f"left out, does not load: {name} ({fault})"))
    if found["unknown_suites"]:
        console.note(f"suites for functions that are not here: {len(found['unknown_suites'])}")
    if found["without_suite"]:
        console.warn(f"{len(found['without_suite'])} functions have no suite, and count as failing")
    spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found["seconds"].items())
    console.note(f"{spent}; results in {found['folder']}")


def _figures(protocol: str, figures: dict[str, Any], found: dict[str, Any]) -> None:
    rows = []
    for name, key, interval, of in _lines(protocol, figures, found["settings"]["scoring"]):
        value = figures.get(key)
        bounds = figures["intervals"].get(interval)
        shown = "n/a" if value is None else f"{value:.2f}"
        between = f"{bounds['low']:.1f} to {bounds['high']:.1f}" if bounds else ""
        rows.append((name, shown, between, console.cell(of, "muted")))
    counted = f"{figures['functions']} functions, {figures['mutants']} mutants"
    title = f"{found['label']}: {protocol} protocol ({counted})"
    console.out().print(console.table(title, ("figure", ">%", ">95 % interval", "of"), rows, framed=True))


def _lines(protocol: str, figures: dict[str, Any], scoring: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows of the table: name, figure, interval, what it is of."""
    if protocol == "one-shot":
        asked = f"{scoring['tests_per_suite']} tests asked"
        mutated = f"{figures['mutation_functions']} functions with mutants"
        return [
            ("validity", "validity", "validity", "as the game counts it"),
            ("valid tests", "valid_tests", "valid tests", f"distinct calls the function answers, of {asked}"),
            ("right tests", "right_tests", "right tests", f"valid, with the right answer, of {asked}"),
            ("stated correctly", "stated_correctly", "", "valid tests"),
            ("mutation score", "mutation", "mutation", f"by right tests; {mutated}"),
            ("mutation score of calls", "mutation_by_calls", "mutation by calls", f"right answers put in; {mutated}"),
            ("kill rate", "kill_rate", "kill rate", f"wrong candidates of {figures['kill_rate_functions']} functions"),
            ("line coverage", "line_coverage", "", "by valid calls, summed over functions"),
            ("branch coverage", "branch_coverage", "", "by valid calls, summed over functions"),
        ]
    k, unconditional = scoring["k"], "mutation, unconditional"
    some = f"{figures[f'mut@{k}_functions']} of {figures['sample']} sampled functions: all {k} tests pass"
    every = f"{figures[f'mut@{k}_all_functions']} functions: all {k} tests pass"
    passes = [(f"pass@{j}", f"pass@{j}", "pass" if j == k else "", "tests that pass") for j in (1, 2, 5, k) if j <= k]
    return [
        *dict.fromkeys(passes),
        ("line coverage", "line_coverage", "", "by all tests, summed over functions"),
        ("branch coverage", "branch_coverage", "", "by all tests, summed over functions"),
        (f"mut@{k}, conditional", f"mut@{k}", "", some),
        ("Mul", "mul", "", f"pass@{k} x mut@{k} / 100"),
        (f"mut@{k}, all functions", f"mut@{k}_all", "", every),
        ("Mul, all functions", "mul_all", "", "the same, without the sample"),
        (unconditional, "mutation_unconditional", unconditional, "by passing tests, all functions"),
    ]


_COUNTS = (("lines", "all_lines"), ("branches", "all_branches"), ("killed", "mutants"))


def _functions(protocol: str, rows: Sequence[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        if protocol == "one-shot":
            tests = f"{row['right']} right, {row['valid']} valid of {row['asserts']}"
            remarks = ", ".join(f"{count} {reason}" for reason, count in row["invalid"].items())
        else:
            tests = f"{row['outcomes'].count('passed')} of {len(row['outcomes'])} pass"
            other = [outcome for outcome in row["outcomes"] if outcome not in ("passed", "failed")]
            remarks = ", ".join(dict.fromkeys(other))
        counts = [f"{row[part]}/{row[whole]}" for part, whole in _COUNTS]
        cells.append((row["id"], tests, *counts, "unscored" if row["unscored"] else remarks))
    columns = ("function", "tests", "lines", "branches", "mutants killed", "remarks")
    console.out().print(console.table(f"functions, {protocol} protocol", columns, cells, framed=True))


def show_file(found: dict[str, Any]) -> None:
    """Each function with its tests and, as diffs, the mutants that survive them."""
    out = console.out()
    for row in found["functions"]:
        alive = row["mutants"] - row["killed"]
        out.print(
            f"{row['id']}: {row['passing']} of {len(row['tests'])} tests pass, "
            f"{row['killed']} of {row['mutants']} mutants killed, {alive} survive",
            style="title", markup=False,
        )  # fmt: skip
        for test in row["tests"]:
            if test["outcome"] != "passed":
                detail = f"  ({test['detail']})" if test["detail"] else ""
                text = f"  {test['outcome']}: {test['test']}{detail}"
                out.print(console.printable(text), style="bad", markup=False, soft_wrap=True)
        for survivor in row["survivors"]:
            out.print(f"\n  line {survivor['line']}, {survivor['operator']}", style="muted", markup=False)
            for line in survivor["diff"].splitlines()[2:]:
                style = {"+": "ok", "-": "bad"}.get(line[:1], "muted")
                out.print("  " + console.printable(line), style=style, markup=False, soft_wrap=True)
    for name, fault in found["not_loading"].items():
        console.note(console.printable(f"left out, does not load: {name} ({fault})"))
    if found["unknown_suites"]:
        console.note(f"suites for functions that are not here: {', '.join(found['unknown_suites'][:5])}")
    console.note(f"results in {found['folder']}")


def show_comparison(found: Sequence[Difference], first: Path, second: Path) -> None:
    """One line per figure that both results have, in bold where its interval leaves out zero."""
    rows = []
    for one in found:
        row = (
            one.protocol, one.figure, one.functions, f"{one.a:.2f}", f"{one.b:.2f}",
            f"{one.difference:+.2f}", f"{one.low:+.2f} to {one.high:+.2f}", len(one.won), len(one.lost),
        )  # fmt: skip
        rows.append([console.cell(item, "title" if one.low > 0 or one.high < 0 else "") for item in row])
    columns = ("protocol", "figure", ">functions", ">A", ">B", ">B - A", ">95 % interval", ">won", ">lost")
    console.out().print(console.table(f"B ({second}) less A ({first}), in points", columns, rows, framed=True))
