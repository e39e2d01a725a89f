"""How `codea1 mistakes inspect` lays a problem out on the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from codea1_cli.cli.console import cell, out, printable, table
from codea1_cli.mistakes.inspect import (
    FailingCandidate,
    LiveTest,
    PoolProgram,
    ProblemView,
    RetiredTest,
    TrendPoint,
    sparkline,
)
from codea1_cli.mistakes.replay import Replayed

_SHOWN_RETIRED = 10


def show(view: ProblemView, replayed: Sequence[Replayed] | None) -> None:
    """Prints the view on stdout."""
    parts: list[RenderableType] = [cell(view.problem_id, "title")]
    if view.question:
        parts.append(cell(view.question.strip()))
    parts += [Text(), _live(view.live)]
    if view.failing is not None:
        parts += [Text(), *_failing(view.failing)]
    if view.trend:
        parts += [Text(), *_trend(view.trend)]
    if view.retired:
        parts += [Text(), _retired(view.retired)]
    if view.pool:
        parts += [Text(), _pool(view.pool)]
    if replayed is not None:
        parts += [Text(), _replayed(replayed)]
    out().print(Group(*parts))


def _verdict(verdict: str) -> Text:
    return cell(verdict, {"passed": "ok", "unscored": "warn"}.get(verdict, "bad"))


def _live(tests: Sequence[LiveTest]) -> RenderableType:
    if not tests:
        return cell("no live tests: every mistake has been learned, or none was found", "muted")
    rows: list[tuple[object, ...]] = []
    for item in tests:
        row = (item.count, item.first_step, item.last_step, item.test)
        if (latest := item.latest) is None:
            rows.append((*row, cell("not in the rollouts", "muted")))
        else:
            failing = f"{latest.failing}/{latest.candidates}"
            rows.append((*row, _verdict(latest.verdict), latest.got, failing, latest.step))
    columns = (">count", ">first", ">last", "test", "verdict", "got", ">failing", ">step")
    return table(f"live tests: {len(tests)}", columns, rows)


def _failing(candidate: FailingCandidate) -> list[RenderableType]:
    which = "" if candidate.candidate_index is None else f" {candidate.candidate_index}"
    where = f", line {' or '.join(map(str, candidate.lines))}" if candidate.lines else ""
    head = f"newest failing candidate{which} of step {candidate.step}: {candidate.verdict}{where}"
    source = Syntax(
        printable(candidate.code),
        "python",
        theme="ansi_dark",
        line_numbers=True,
        highlight_lines=set(candidate.lines),
        background_color="default",
        word_wrap=True,
    )
    return [cell(head, "title"), cell(candidate.test, "muted"), source]


def _trend(points: Sequence[TrendPoint]) -> list[RenderableType]:
    first, last = points[0], points[-1]
    span = f"steps {first.step} to {last.step}" if len(points) > 1 else f"step {last.step}"
    return [
        Text(f"trend, {span}", style="title"),
        Text(f"live tests  {sparkline([p.tests for p in points])}  {last.tests}"),
        Text(f"mistakes    {sparkline([p.mistakes for p in points])}  {last.mistakes}"),
    ]


def _retired(tests: Sequence[RetiredTest]) -> RenderableType:
    rows = [
        [cell(text, "muted") for text in (item.peak, item.first_step, item.last_step, item.test)]
        for item in tests[:_SHOWN_RETIRED]
    ]
    shown = table(f"retired tests: {len(tests)}", (">peak", ">first", ">last", "test"), rows)
    if len(tests) > _SHOWN_RETIRED:
        shown.caption = f"and {len(tests) - _SHOWN_RETIRED} more: --json has all"
    return shown


def _pool(programs: Sequence[PoolProgram]) -> RenderableType:
    rows = []
    for item in programs:
        broken = cell("not in the rollouts", "muted") if item.suites is None else f"{item.breaking}/{item.suites}"
        whose = "own test" if item.own_test else "validated test"
        rows.append((item.id, item.step, broken, f"{whose} {item.evidence}", item.code))
    shown = table(f"pool of wrong programs: {len(programs)}", ("id", ">step", ">broken by", "fails", "<program"), rows)
    if (at := programs[0].at) is not None:
        shown.caption = f"broken by: suites of step {at} with a rightly stated assert that the program fails"
    return shown


def _replayed(rows: Sequence[Replayed]) -> RenderableType:
    cells = [
        (row.test, _verdict(row.before), _verdict(row.verdict), row.expected, row.got, row.line or "") for row in rows
    ]
    return table("replayed now", ("test", "before", "now", "expected", "got", "line"), cells)
