"""How `codea1 mistakes inspect` lays a problem out on the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from codea1_cli.cli.console import out, printable
from codea1_cli.mistakes.inspect import FailingCandidate, LiveTest, ProblemView, RetiredTest, TrendPoint, sparkline
from codea1_cli.mistakes.replay import Replayed

_SHOWN_RETIRED = 10


def show(view: ProblemView, replayed: Sequence[Replayed] | None) -> None:
    """Prints the view on stdout."""
    parts: list[RenderableType] = [Text(printable(view.problem_id), style="title")]
    if view.question:
        parts.append(Text(printable(view.question.strip())))
    parts += [Text(), _live(view.live)]
    if view.failing is not None:
        parts += [Text(), *_failing(view.failing)]
    if view.trend:
        parts += [Text(), *_trend(view.trend)]
    if view.retired:
        parts += [Text(), _retired(view.retired)]
    if replayed is not None:
        parts += [Text(), _replayed(replayed)]
    out().print(Group(*parts))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_style="title", title_justify="left", box=None)
    for name in columns:
        number = name in {"count", "first", "last", "peak", "step", "failing"}
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return table


def _verdict(verdict: str) -> Text:
    style = {"passed": "ok", "unscored": "warn"}.get(verdict, "bad")
    return Text(verdict, style=style)


def _live(tests: Sequence[LiveTest]) -> RenderableType:
    if not tests:
        return Text("no live tests: every mistake has been learned, or none was found", style="muted")
    table = _table(f"live tests: {len(tests)}", "count", "first", "last", "test", "verdict", "got", "failing", "step")
    for item in tests:
        row = [Text(str(item.count)), Text(str(item.first_step)), Text(str(item.last_step)), Text(printable(item.test))]
        latest = item.latest
        if latest is None:
            row += [Text("not in the rollouts", style="muted"), Text(), Text(), Text()]
        else:
            failing = Text(f"{latest.failing}/{latest.candidates}")
            row += [_verdict(latest.verdict), Text(printable(latest.got)), failing, Text(str(latest.step))]
        table.add_row(*row)
    return table


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
    return [Text(head, style="title"), Text(printable(candidate.test), style="muted"), source]


def _trend(points: Sequence[TrendPoint]) -> list[RenderableType]:
    first, last = points[0], points[-1]
    span = f"steps {first.step} to {last.step}" if len(points) > 1 else f"step {last.step}"
    return [
        Text(f"trend, {span}", style="title"),
        Text(f"live tests  {sparkline([p.tests for p in points])}  {last.tests}"),
        Text(f"mistakes    {sparkline([p.mistakes for p in points])}  {last.mistakes}"),
    ]


def _retired(tests: Sequence[RetiredTest]) -> RenderableType:
    table = _table(f"retired tests: {len(tests)}", "peak", "first", "last", "test")
    for item in tests[:_SHOWN_RETIRED]:
        row = (str(item.peak), str(item.first_step), str(item.last_step), printable(item.test))
        table.add_row(*map(Text, row), style="muted")
    if len(tests) > _SHOWN_RETIRED:
        table.caption = f"and {len(tests) - _SHOWN_RETIRED} more: --json has all"
    return table


def _replayed(rows: Sequence[Replayed]) -> RenderableType:
    table = _table("replayed now", "test", "before", "now", "expected", "got", "line")
    for row in rows:
        table.add_row(
            Text(printable(row.test)),
            _verdict(row.before),
            _verdict(row.verdict),
            Text(printable(row.expected)),
            Text(printable(row.got)),
            Text(str(row.line or "")),
        )
    return table
