"""How `codea1 runs show` lays a run out on the terminal, and `codea1 mistakes inspect` a problem."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.syntax import Syntax
from rich.text import Text

from codea1_cli.cli.console import cell, note, out, printable, say, show, table, warn
from codea1_cli.cli.layout import Table, whole
from codea1_cli.errors import command, counted, size_text, some
from codea1_cli.methods.registry import ROLES
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
from codea1_cli.recipe import flat
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs import gpu_hours, trained_on
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunSummary, summarise
from codea1_cli.runs.tracking import places


def show_problem(view: ProblemView, replayed: Sequence[Replayed] | None, limit: int, kept: bool = True) -> None:
    """Prints the view on stdout; of tests at most `limit` in each table, all with 0. kept: whether the run keeps a
    Mistake Book."""
    say(cell(view.problem_id, "title", whole=True))
    if view.question:
        say(cell(view.question.strip()))
    show(Text(), _live(view.live, limit, kept))
    if view.failing is not None:
        show(Text())
        _show_failing(view.failing)
    if view.trend:
        show(Text(), *_trend(view.trend))
    if view.retired:
        show(Text(), _retired(view.retired, limit))
    if view.pool:
        show(Text(), _pool(view.pool))
    if replayed is not None:
        show(Text(), _replayed(replayed, limit))


def _limited(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], limit: int) -> Table:
    shown = table(title, columns, rows[: limit or None])
    if limit and len(rows) > limit:
        shown.caption = f"and {len(rows) - limit} more: --limit 0 shows all"
    return shown


def _verdict(verdict: str) -> Text:
    return cell(verdict, {"passed": "ok", "unscored": "warn"}.get(verdict, "bad"))


def _live(tests: Sequence[LiveTest], limit: int, kept: bool) -> Table | Text:
    if not tests:
        why = "every mistake has been learned, or none was found" if kept else "the run keeps no Mistake Book"
        return cell(f"no live tests: {why}", "muted")
    rows: list[tuple[object, ...]] = []
    for item in tests:
        row = (item.test, item.count, item.first_step, item.last_step)
        if (latest := item.latest) is None:
            rows.append((*row, "", "", cell("not in the rollouts", "muted"), ""))
        else:
            failing = f"{latest.failing}/{latest.candidates}"
            rows.append((*row, failing, latest.step, _verdict(latest.verdict), latest.got))
    columns = ("<test", ">count", ">first", ">last", ">failing", ">step", "verdict", "got")
    return _limited(f"live tests: {len(tests)}", columns, rows, limit)


def _show_failing(candidate: FailingCandidate) -> None:
    which = "" if candidate.candidate_index is None else f" {candidate.candidate_index}"
    where = f", line {' or '.join(map(str, candidate.lines))}" if candidate.lines else ""
    say(f"newest failing candidate{which} of step {candidate.step}: {candidate.verdict}{where}", "title")
    say(cell(candidate.test, "muted", whole=True))
    source = Syntax(printable(candidate.code), "python", theme="ansi_dark").highlight(printable(candidate.code))
    source.rstrip()
    lines = source.split(allow_blank=True)
    for number, line in enumerate(lines, 1):
        mark, style = ("❱", "bad") if number in candidate.lines else (" ", "muted")
        say(whole(Text.assemble((f"{mark} {number:>{len(str(len(lines)))}} ", style), line)))


def _trend(points: Sequence[TrendPoint]) -> list[Text]:
    first, last = points[0], points[-1]
    span = f"steps {first.step} to {last.step}" if len(points) > 1 else f"step {last.step}"
    wide = max(8, min(60, out().width - 20))
    return [
        Text(f"trend, {span}", style="title"),
        Text(f"live tests  {sparkline([p.tests for p in points], wide)}  {last.tests}"),
        Text(f"mistakes    {sparkline([p.mistakes for p in points], wide)}  {last.mistakes}"),
    ]


def _retired(tests: Sequence[RetiredTest], limit: int) -> Table:
    rows = [[cell(text, "muted") for text in (item.test, item.peak, item.first_step, item.last_step)] for item in tests]
    return _limited(f"retired tests: {len(tests)}", ("<test", ">peak", ">first", ">last"), rows, limit)


_SUITES = 3  # named of those that break a program


def _pool(programs: Sequence[PoolProgram]) -> Table:
    rows = []
    for item in programs:
        broken: Text | str = cell("not in the rollouts", "muted")
        if item.broken_by is not None:
            broken = " ".join([f"{item.breaking}/{item.suites}", *item.broken_by[:_SUITES]])
            broken += " .." if len(item.broken_by) > _SUITES else ""
        whose = "own test" if item.own_test else "validated test"
        rows.append((item.id, item.step, broken, f"{whose} {item.evidence}", item.code))
    shown = table(
        f"pool of wrong programs: {len(programs)}", ("<id", ">step", ">broken by", "<fails", "<program"), rows
    )
    if (at := programs[0].at) is not None:
        shown.caption = (
            f"broken by: suites of step {at} with a rightly stated assert that the program fails, the first of them as "
            "CANDIDATE.SUITE; --json has all"
        )
    return shown


def _replayed(rows: Sequence[Replayed], limit: int) -> Table:
    cells = [
        (row.test, _verdict(row.before), _verdict(row.verdict), row.expected, row.got, row.line or "") for row in rows
    ]
    return _limited("replayed now", ("<test", "before", "now", "expected", "got", ">line"), cells, limit)


# -- codea1 runs show --------------------------------------------------------------------------------------------------
def show_run(
    run: RunDir,
    row: RunSummary,
    info: Mapping[str, Any],
    kept: Sequence[Mapping[str, int]],
    lines: tuple[list[dict[str, Any]], list[dict[str, Any]], int],
    cost: Mapping[str, Any],
) -> None:
    """Prints a run on stdout: its run.json, its checkpoints `kept`, what it has `spent`, of metrics.jsonl the last
    steps and evaluations, and how many evaluations there are."""
    step_lines, eval_lines, every = lines
    total = f" of {row.total}" if row.total else ""
    where = f" at step {row.step}{total}" if row.state != "stopped before step 1" else total
    say(cell(row.name, "title", whole=True).append(f": {row.state}{where}"))
    facts: dict[str, Any] = {"folder": row.path, "recipe": row.recipe, "started": row.started}
    if data := info.get("data"):
        facts["trained on"] = f"{trained_on(data, data.get('train'))}; held out: {data.get('heldout') or 'none'}"
    facts["size"] = size_text(row.bytes)
    newest = [f"{item['step']} ({size_text(item['bytes'])})" for item in kept[-_CHECKPOINTS:]]
    earlier = f", and {len(kept) - _CHECKPOINTS} earlier ones: --json has all" if kept[:-_CHECKPOINTS] else ""
    facts["checkpoints"] = (", ".join(newest) or "none") + earlier
    if best := run.best(warn):
        facts["best"] = f"step {best['step']}, {best['figure']} {best['value']:.4g}"
    if (warmup := summarise(run.warmup)).recipe != "?":
        facts["warm-up"] = f"{warmup.state} at step {warmup.step} of {warmup.total or '?'}, {run.warmup.path}"
    if hours := gpu_hours(cost):
        facts["GPU hours"] = "; ".join(hours)
    facts |= {f"in {name}": where for name, where in places(run).items()}
    if row.error:
        facts["error"] = row.error
    if isinstance(info.get("command"), list):
        facts["command"] = cell(shlex.join(map(str, info["command"])), whole=True)
    if info.get("resumed"):
        facts["resumed"] = "; ".join(map(_resumed, info["resumed"]))
    known = {*facts, "name", "problem_ids", "pair_ids", "environment", "stop", "until", "error"}
    made = flat({key: value for key, value in info.items() if key not in known})
    for told in (facts, made) if made else (facts,):
        show(table(None, ("<", ""), [(f"  {key:<13}", _fact(value)) for key, value in told.items()]))
        if told is facts:
            bookless = any("solved_share" in line.get("arena", {}) for line in step_lines)  # on the problems' own tests
            columns = {key: name for key, name in _STEP_COLUMNS.items() if not bookless or key != "arena.book_tests"}
            _print_lines("last steps", step_lines, columns)
            _print_lines("evaluations", eval_lines, _EVAL_COLUMNS)
            if every > len(eval_lines):
                note(f"and {counted(every - len(eval_lines), 'earlier evaluation')}: --steps {every} shows all")
            if made:
                say("made with", "title")
    if row.state not in ("running", "finished") and (run.latest_step() or run.warmup.exists()):
        of = outer if (outer := RunDir(run.path.parent)).exists() and run.path == outer.warmup.path else run
        note(f"next: {command('train', *of.options, '--resume')}")


def _fact(value: Any) -> Any:
    """A value of run.json, of a long list the first items."""
    if isinstance(value, list) and len(value) > _ITEMS:
        return f"{some(list(map(str, value)), _ITEMS)}: --json has all"
    return value


def _resumed(entry: dict[str, Any]) -> str:
    changed = ", ".join(f"{key} {before} -> {now}" for key, (before, now) in entry.get("changed", {}).items())
    return f"after step {entry.get('step', 0)}" + (f" with {changed}" if changed else "")


_CHECKPOINTS, _ITEMS = 5, 12  # shown at most

# What a person looks for first; --json and metrics.jsonl hold the rest.
_STEP_COLUMNS = {
    "step": "step",
    "code.reward": "code reward",
    "test.reward": "test reward",
    "code.token_accuracy": "code accuracy",
    "test.token_accuracy": "test accuracy",
    "arena.solved_share": "solved",
    "arena.passed_share": "passed",
    "arena.code_signal_share": "code signal",
    "arena.test_signal_share": "test signal",
    "arena.exposed_share": "exposed",
    "arena.false_alarm_share": "false alarm",
    "arena.suite_validity": "validity",
    "arena.stated_correctly_share": "rightly",
    "arena.asserts_per_suite": "asserts",
    "arena.group_calls": "calls",
    "arena.wrong_share": "wrong",
    "arena.book_tests": "book",
    "arena.unscored": "unscored",
    "timing.step_s": "seconds",
}
_EVAL_COLUMNS = {
    "step": "step",
    "eval.set": "set",
    "eval.code.pass@1": "pass@1",
    "eval.base/pass@1": "base pass@1",
    "eval.plus/pass@1": "plus pass@1",
    "eval.tests/pass@1": "tests pass@1",
    "eval.test.exposed": "exposed",
    "eval.near_miss.exposed": "near-miss",
    "eval.test.false_alarm": "false alarm",
    "eval.test.soundly_exposed": "soundly",
    "eval.test.validity": "validity",
    "eval.test.stated_correctly": "rightly",
    "eval.test.asserts": "asserts",
    "eval.validity": "validity %",
    "eval.mutation": "mutation %",
}


def _print_lines(title: str, lines: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """A table of the columns that any of the lines fills."""
    rows = [flat(line) for line in lines]
    used = {key: heading for key, heading in columns.items() if any(row.get(key) is not None for row in rows)}
    if not used:
        return
    cells = [["" if row.get(key) is None else _number(row[key]) for key in used] for row in rows]
    show(table(title, [f">{heading}" for heading in used.values()], cells))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


# -- the end of codea1 train -------------------------------------------------------------------------------------------
def closing_table(recipe: Recipe, evaluations: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]) -> Table:
    """The held-out figures of a run at its first and last evaluation, and what its suites were like in the first and
    last of its steps; lines of metrics.jsonl."""
    from codea1_cli.methods.code_a1 import number, percent
    from codea1_cli.models.loading import BUILTIN

    plain: Callable[[float | None], str] = partial(number, digits=1)
    first, last = evaluations[0], evaluations[-1]
    code, test = (first["eval"].get(role, {}) for role in ROLES)
    what = (code["problems"], "held-out problem") if code else (test.get("suites", 0), "held-out suite")
    builtin = [str(one).startswith(BUILTIN) for one in (recipe.data.train, recipe.data.heldout)]
    of = f" of {recipe.data.heldout}" if builtin == [False, True] else ""
    title = f"{counted(*what)}{of}, step {first['step']} and step {last['step']}"
    labels = [
        *((f"Code LLM pass@{k}", "code", f"pass@{k}", percent) for k in (1, code.get("n"))),
        ("Test LLM wrong programs exposed", "test", "exposed", percent),
        ("Test LLM near-miss programs exposed", "near_miss", "exposed", percent),
        ("Test LLM exposed without a false alarm", "test", "soundly_exposed", percent),
        ("Test LLM suites that raise a false alarm", "test", "false_alarm", percent),
        ("Test LLM suite validity", "test", "validity", percent),
        ("Test LLM answers stated rightly", "test", "stated_correctly", percent),
        ("Test LLM asserts per suite", "test", "asserts", plain),
    ]
    rows = [
        (label, *(as_text(line["eval"].get(part, {}).get(key)) for line in (first, last)))
        for label, part, key, as_text in labels
        if part in last["eval"]
    ]
    trained = [
        ("distinct calls in a group", "group_calls", plain),
        ("wrong ones of the attacked", "wrong_share", percent),
    ]
    rows += [
        (f"in training: {label}", *(as_text(line["arena"].get(key)) for line in (steps[0], steps[-1])))
        for label, key, as_text in trained
        if steps and key in steps[-1]["arena"]
    ]
    return table(title, ("", ">before", ">after"), rows, framed=True)
