"""What `codea1 write-tests` shows; and its work on a set of problems, which has no file to look at."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from codea1_cli.cli import console
from codea1_cli.errors import UserError, command, counted

if TYPE_CHECKING:
    from codea1_cli.data.golden import GoldenOptions
    from codea1_cli.evals.best_of_n import Plan
    from codea1_cli.evals.test_generation.writing import Alarm
    from codea1_cli.extract.pytests import Converted
    from codea1_cli.sandbox.base import Limits
    from codea1_cli.sandbox.make import SandboxOptions


_OF_OTHERS = {"other_call", "repeated", "other_comparison", "no_comparison"}  # or read already


def unread_of(converted: Iterable[Converted]) -> dict[str, int]:
    """How many asserts could not be read, by reason, where the same files were read for several functions: those that
    mention one of them, and those of which nobody knows what they test."""
    own, rest = Counter[tuple[str, str]](), list[Counter[str]]()
    for one in converted:
        own |= one.unread
        rest.append(one.skipped - Counter(reason for _, reason in one.unread.elements()))
    found = Counter(reason for _, reason in own.elements())
    for reason in set[str]().union(*rest) - _OF_OTHERS:
        found[reason] += min(one[reason] for one in rest)
    return {reason: count for reason, count in found.items() if count}


def show_alarms(
    files: Sequence[Any], alarms: list[tuple[Path, Alarm]] | None, limit: int, about: Mapping[str, Any] | None
) -> None:
    """Alarms with their evidence, those that most samples agree on first, and by file why other functions have none.
    about: what a JSON document begins with; None: for people."""
    not_tested = {file.path: file.faults for file in files if file.faults}
    functions = sum(one.name not in file.faults for file in files for one in file.functions)
    if alarms is None:
        console.warn("the sandbox failed on a function; the same command tries again")
        raise typer.Exit(console.EXIT_ENVIRONMENT)
    if about is not None:
        rows = [{"file": str(path), **asdict(alarm)} for path, alarm in alarms]
        console.emit({**about, "functions": functions, "alarms": rows, "not_tested": not_tested})
        return
    agreed = [(path, one) for path, one in alarms if one.votes > 1 or one.by]
    for path, one in agreed[:limit]:
        share = f"{one.votes} of {counted(one.asked, 'sample')}"
        who = f"{one.by} states" if one.by else f"{share} state"
        console.say(f"{path}:{one.line}  {one.call} {one.given}; {who} {one.stated}")
        votes = f"stated too by {share}, what it gives by {one.against}" if one.asked else "no sample makes the call"
        votes = votes if one.by else f"{one.against} state what it gives"
        console.say(f"    {votes}; {one.word or 'no docstring'}", "muted", indent=4)
    if len(agreed) > limit:
        console.note(f"and {counted(len(agreed) - limit, 'alarm')} more: --limit {len(agreed)} shows all")
    for path, faults in not_tested.items():
        for name, fault in faults.items():
            place = name if name == path.name else f"{path}  {name}"
            console.say(f"not tested: {place}: {fault}", "warn", indent=2)
    where = f"{len({(path, one.function) for path, one in agreed})} of {counted(functions, 'function')}"
    alone = f"; --json has {len(alarms) - len(agreed)} more, each of one sample alone" if agreed != alarms else ""
    console.note(f"{counted(len(agreed), 'alarm')} on {where}: code or samples may be wrong{alone}")


def tell_equal(texts: Sequence[Sequence[str]], temperature: float) -> None:
    """Says that the samples of each function are the same, where they are: as many as one."""
    several = [replies for replies in texts if len(replies) > 1]
    if several and all(len(set(replies)) == 1 for replies in several):
        same = counted(max(map(len, several)), "sample")
        hint = (
            "--temperature 1 varies them" if temperature < 1 else "the model is sure, or its server samples its own way"
        )
        console.note(f"the {same} of each function are all the same, and count as one: {hint}")


def show_written(found: dict[str, Any], limit: int) -> None:
    """What came of one file: its functions, failing tests, surviving mutants, and the tests that were written."""
    tested = [one for one in found["functions"] if not one["not_tested"]]
    keys = ("mutants", "killed_before", "killed_after")
    rows = [(one["name"], one["existing"], len(one["kept"]), *(one[key] for key in keys)) for one in tested]
    if rows:
        columns = ("<function", ">tests", ">new", ">mutants", ">killed before", ">killed after")
        console.show(console.table(found["file"], columns, rows, framed=True))
    for one in found["functions"]:
        for test in one["failing"]:
            console.say(f"fails today: {test}", "bad", indent=2)
    for one in found["stale"]:
        place = f"{found['tests_file']}:{'-'.join(map(str, dict.fromkeys(one['lines'])))}"
        text = f"nothing is called {', '.join(one['missing'])}; delete these lines, or write its new name"
        console.say(f"fails today: {place}  {one['test']}: {text}", "bad", indent=2)
    alive = sorted((m["line"], one["name"], m["changed"]) for one in tested for m in one["survivors"])
    for line, name, changed in alive[:limit]:
        console.say(f"survives: {found['file']}:{line}  {name}: {changed}", indent=2)
    if len(alive) > limit:
        console.note(f"and {counted(len(alive) - limit, 'mutant')} more: --limit {len(alive)} shows all")
    for name, fault in found["not_tested"].items():
        console.say(f"not tested: {name}: {fault}", "warn", indent=2)
    total = {key: sum(one[key] for one in found["functions"]) for key in keys}
    if unread := sum(found["unread"].values()):
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found["unread"].items()))
        console.note(f"{counted(unread, 'assert')} of existing tests not read: {reasons}")
    if found["coverage"]:
        before, after = found["coverage"]["before"], found["coverage"]["after"]
        console.note(
            f"killed {total['killed_after']} of {counted(total['mutants'], 'mutant')} "
            f"({total['killed_before']} before); "
            f"lines {after['lines']} of {after['all_lines']} ({before['lines']}), "
            f"branches {after['branches']} of {after['all_branches']} ({before['branches']})"
        )
    if found["gone"]:
        names = ", ".join(found["gone"])
        console.note(f"{found['tests_file']}: no import of {names} any more, which {found['file']} does not have")
    if not found["written"]:
        console.note(f"{found['tests_file']}: nothing to add")
        return
    sure = "run by pytest in the sandbox" if found["passing_by"] == "pytest" else "judged one by one: no pytest there"
    console.note(f"{found['tests_file']}: {counted(found['written'], 'new test')}, all pass ({sure})")
    console.note(f"next: {_pytest(found)}")


def _pytest(found: dict[str, Any]) -> str:
    """The command that runs the tests: the folder that the module is imported from has to be known."""
    from codea1_cli.evals.test_generation.entries import module_of

    root = module_of(Path(found["file"]))[1]
    words = shlex.join(["python", "-m", "pytest", str(found["tests_file"])])
    return words if root == Path.cwd() else f"PYTHONPATH={shlex.quote(str(root))} {words}"


# -- a problem set -----------------------------------------------------------------------------------------------------
def refuse_what_has_no_effect(
    context: typer.Context, target: Path | None, problems: str | None, out: Path | None
) -> None:
    """What cannot be meant together.

    Raises:
        UserError: names it.
    """
    from codea1_cli.cli.eval_code_view import refuse_idle
    from codea1_cli.durable import check_target, check_writable
    from codea1_cli.problems.problem import WRITTEN
    from codea1_cli.problems.row_files import format_of

    if (target is None) == (problems is None):
        what = "two things to write tests for" if target else "nothing to write tests for"
        raise UserError(what, hint="a Python file or folder, or --problems FILE")
    refuse_idle(
        context,
        (problems is None, "white_box validate min_exposed", "{} is for --problems"),
        (problems is not None, "suites find_bugs limit", "{} is for Python files, not for --problems"),
        (context.params["find_bugs"], "out", "--find-bugs writes nothing, so {} would have no effect"),
    )
    if problems is not None and out is None:
        raise UserError("--problems needs a file to write", hint="--out golden.jsonl")
    if problems is not None and out is not None:
        if format_of(out) not in WRITTEN:
            raise UserError(f"cannot tell the format of {out}", hint=f"name it {' or '.join(WRITTEN)}")
        check_target(out, force=True)
        check_writable(out.parent, "--out")
        _refuse_foreign(problems, out)


def _refuse_foreign(problems: str, out: Path) -> None:
    """Raises UserError where the problems themselves, or what somebody else wrote, would be written over."""
    from codea1_cli.data.golden import beside

    if out.exists() and Path(problems).exists() and out.samefile(problems):
        raise UserError(f"--out {out} is the problem set itself", hint="another --out: its own tests would be lost")
    if not beside(out, ".card.json").exists():
        for file in (out, beside(out, ".md")):
            if file.exists():
                raise UserError(f"{file} is there already, and this command did not write it", hint="another --out")


def write_problems(
    data: str, out: Path, plan: Plan, options: GoldenOptions, sandbox: SandboxOptions, limits: Limits, bar: Any
) -> dict[str, Any]:
    """Writes the problems of a file with a Test LLM's tests to `out`, and returns their card. What is sampled is kept
    beside it.

    Raises:
        UserError: the problems cannot be read, or none has a test in the end.
    """
    from codea1_cli.cli.judge import open_sandbox
    from codea1_cli.data import golden
    from codea1_cli.evals.best_of_n import Candidates, write_suites
    from codea1_cli.judging.judge import Judge
    from codea1_cli.problems.problem import public_problem, read_problems
    from codea1_cli.recipe.resources import problems_file

    problems = read_problems(problems_file(data), references=False)
    if not problems:
        raise UserError(f"{data} holds no problem", hint="a row for each problem, as `prepare-data` writes them")
    needs = {"--validate": options.validate, "--min-exposed": options.min_exposed, "--white-box": plan.each}
    if given := [name for name, value in needs.items() if value and not any(one.reference for one in problems)]:
        raise UserError(f"no problem of {data} has a reference, which {given[0]} needs", hint=f"leave {given[0]} out")
    known = [one for one in problems if one.reference or not (options.validate or options.min_exposed)]
    asked = [Candidates(public_problem(problem), (problem.reference,)) for problem in known]
    with open_sandbox(sandbox) as opened:
        suites = write_suites(asked, plan, golden.beside(out, ".suites.jsonl"), bar)
        made = []
        with closing(golden.make_golden(problems, suites, options, Judge(opened, limits=limits))) as results:
            for one in results:
                made.append(one)
                bar("running", len(made), len(problems))
    name = data if data.startswith("builtin:") else Path(data).name
    about = {
        "model": plan.model.label if plan.model else "",
        "data": name,
        "suites": plan.sampling.n,
        "white_box": plan.each,
    }
    card = golden.golden_card(made, options, about)
    if not card["with_tests"]:
        why = ", ".join(f"{reason}: {count}" for reason, count in card["without"].items())
        raise UserError(f"none of {counted(len(problems), 'problem')} has a test in the end: {why}")
    words = ["write-tests", "--problems", name, "--model", about["model"], "--out", out.name, "--n", plan.sampling.n]
    words += ["--tests", plan.tests, "--temperature", plan.sampling.temperature, "--seed", plan.sampling.seed]
    words += ["--server", plan.model.server.url] if plan.model and plan.model.server else []
    words += ["--white-box"] if plan.each else []
    words += ["--validate"] if options.validate else []
    words += ["--min-exposed", options.min_exposed] if options.min_exposed else []
    golden.write_golden(out, problems, made, card, shlex.join(["codea1", *map(str, words)]))
    return card


def show_problems(card: dict[str, Any], out: Path, as_json: bool, spent: Mapping[str, Any] | None = None) -> None:
    """How many problems have tests, why others have none, and how good the tests are; spent: for the JSON document."""
    from codea1_cli.cli.eval_code_view import percent
    from codea1_cli.data.golden import UNSCORED

    if as_json:
        console.emit({"out": str(out), **card, **(spent or {})})
    else:
        rows: list[Any] = [("problems", "", card["problems"])]
        rows += [("without a test", reason, -count) for reason, count in card["without"].items()]
        rows += [("with tests", "", card["with_tests"]), ("tests", "", card["tests"])]
        if card["with_reference"]:
            rows += [
                ("stated rightly", "of all calls", percent(card["stated_rightly"])),
                ("", "of the tests written", percent(card["stated_rightly_kept"])),
                ("exposed", "of the programs tried", percent(card["exposed"])),
            ]
        console.show(console.table(f"tests by {card['model']}", ("<", "<", ">"), rows))
        repeated = counted(card["duplicates"], "duplicate")
        console.note(f"{counted(card['asserts'], 'assert')} read, {repeated}; {out} has a card beside it")
        right = card["stated_rightly_kept"] if card["with_reference"] else None
        if right is not None and right < 1:
            wrong = f"{percent(1 - right)} of the tests state another answer than the reference"
            console.note(f"{wrong}, and a Code LLM would learn it: --validate leaves them out, at no further sample")
        train = command("train", "--recipe", "tiny", "method=golden-tests", f"data.train={out}")
        console.note(f"next: {train}")
    if failed := card["without"].get(UNSCORED):
        console.warn(f"{counted(failed, 'problem')} left out, the sandbox failed on them; the same command tries again")
        raise typer.Exit(console.EXIT_ENVIRONMENT)
