"""`codea1 write-tests`: a pytest file for somebody's own functions, from what a model writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.judge import EndpointOption, PythonOption, RequireOption, SandboxOption, WorkersOption, open_sandbox
from codea1_cli.cli.shell import option_groups, panels, run_names
from codea1_cli.durable import check_folder, check_writable, only_writer
from codea1_cli.environment import cores
from codea1_cli.errors import UserError
from codea1_cli.models import ServerOptions

if TYPE_CHECKING:
    from codea1_cli.evals.test_generation import Function
    from codea1_cli.evals.test_generation.evaluation import Scorer
    from codea1_cli.evals.test_generation.writing import Alarm, Student, Studied
    from codea1_cli.models.sampler import ModelRef, SamplingSettings


@panels(
    {
        "Model and functions": "model step runs suites out find_bugs limit",
        "A problem set": "problems white_box validate min_exposed",
        "Sampling": "n tests temperature top_p max_new_tokens seed engine",
        "A server": "server concurrency max_requests omit patience",
        "Sandbox": "test_seconds memory_mb workers python require sandbox endpoint",
    }
)
@option_groups
def write_tests(
    context: typer.Context,
    served: ServerOptions,
    target: Annotated[
        Path | None, Argument(metavar="FILE.py|FOLDER", help="Your functions; they are not changed.")
    ] = None,
    problems: Annotated[
        str | None, Option(metavar="FILE", help="A problem set in their place: tests to train a Code LLM on.")
    ] = None,
    white_box: Annotated[
        bool, Option("--white-box", help="Show the model a problem's reference, as training shows it a program.")
    ] = False,
    validate: Annotated[
        bool, Option("--validate", help="Of a problem only tests that state its reference's answer.")
    ] = False,
    min_exposed: Annotated[int, Option(min=0, help="Wrong programs that a problem's tests must expose.")] = 0,
    model: Annotated[
        str | None,
        Option(metavar="PATH|RUN", help="The newest run's Test policy when left out.", autocompletion=run_names),
    ] = None,
    step: Annotated[int | None, Option(min=0, help="A run's checkpoint; the newest.")] = None,
    suites: Annotated[
        list[Path] | None, Option(metavar="TEST.py|DIR", help="Tests that exist, as pytest has them; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="DIR|FILE", help="Where test files go, ./tests else; of --problems the file.")
    ] = None,
    find_bugs: Annotated[
        bool, Option("--find-bugs", help="Write nothing: show where samples agree against what the code gives.")
    ] = False,
    limit: Annotated[int, Option(min=0, help="Mutants that survive, of each file, or alarms, that are shown.")] = 10,
    n: Annotated[int, Option(min=1, help="Suites sampled of each function.")] = 8,
    tests: Annotated[int, Option(min=1, help="Tests a suite is asked for.")] = 8,
    temperature: Annotated[float, Option(min=0.0, help="0 is greedy: all samples are the same.")] = 1.0,
    top_p: Annotated[float, Option(min=0.01, max=1.0, help="Nucleus of the sampling.")] = 0.95,
    max_new_tokens: Annotated[
        int | None, Option(min=1, help="Tokens of a reply; 1024, or half of what a small model takes.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the sampling; another one finds other tests.")] = 0,
    engine: Annotated[str, Option(help="auto, vllm or transformers.")] = "auto",
    test_seconds: Annotated[float, Option(min=0.05, help="Limit of a call.")] = 4.0,
    memory_mb: Annotated[int, Option(min=64, help="Memory of a call, in MiB.")] = 1024,
    workers: WorkersOption = None,
    python: PythonOption = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write tests for your own functions. The few that kill the most mutants and reach the most branches.

    A model writes suites for each function, shown its source; a kept test states what the function gives today, in a
    pytest file of its own. Functions that cannot be tested so are named. With --problems it writes tests of problems
    from their statements, for `train method=golden-tests`.
    """
    from codea1_cli.cli import write_tests_view as view
    from codea1_cli.cli.streams import Bar, interruptible
    from codea1_cli.evals.test_generation.evaluation import WARM, Scorer
    from codea1_cli.evals.test_generation.figures import Scoring
    from codea1_cli.evals.test_generation.pytest_files import write_tests as write
    from codea1_cli.evals.test_generation.writing import Student
    from codea1_cli.models.sampler import SamplingSettings, replies_beside, reply_tokens
    from codea1_cli.runs.policy_folders import find_model
    from codea1_cli.sandbox.make import SandboxOptions

    view.refuse_what_has_no_effect(context, target, problems, out)
    folder = out or Path("tests")
    files = _files(target, suites or [], folder, find_bugs) if target is not None else []
    named = find_model(model, role="test", step=step, runs_root=runs, server=served.find(engine))
    settings = SamplingSettings(n, temperature, top_p, max_new_tokens or reply_tokens(named, 1024), seed)
    count, warm = workers or cores(), (*WARM, "pytest") if files else ()
    scoring = Scoring(test_s=test_seconds, memory_mb=memory_mb)
    options = SandboxOptions(sandbox, endpoint, python=python, require=require or (), workers=count, warm=warm)
    if problems is not None and out is not None:
        from codea1_cli.data.golden import GoldenOptions
        from codea1_cli.evals.best_of_n import Plan

        plan, golden = Plan(named, settings, tests, white_box, engine), GoldenOptions(tests, validate, min_exposed)
        with interruptible("suites are kept, the same command goes on"), only_writer(out, out, wait), Bar() as bar:
            card = view.write_problems(problems, out, plan, golden, options, scoring.limits, bar)
        view.show_problems(card, out, as_json, served.told(console.note))
        return
    kept = replies_beside(folder)
    said = "what a server answered is kept, the same command goes on" if named.server else "nothing is written so far"
    with (
        interruptible(said),
        only_writer(folder, folder, wait) if named.server or not find_bugs else nullcontext(),
        Bar() as bar,
        open_sandbox(options) as opened,
    ):
        scorer = Scorer(opened, scoring)
        _leave_broken(files, scorer, opened.workers)
        functions = [one for file in files for one in file.functions]
        if functions and not find_bugs:
            scorer.check_tools()
        texts = _sampled(functions, named, settings, tests, engine, kept, bar)
        view.tell_equal(texts, temperature)
        student = Student(scorer.judge, scorer.runner)
        if find_bugs:
            alarms = _alarms(files, texts, student, opened.workers, bar)
            whole = alarms is not None
        else:
            _study(files, texts, student, opened.workers, bar)
            found = [_written(file, write(file.studied, file.path, folder, opened)) for file in files]
            whole = not any(row["unscored"] for one in found for row in one["functions"])
        if whole:
            kept.unlink(missing_ok=True)
    spent = served.told(console.note)
    if find_bugs:
        view.show_alarms(files, alarms, limit, {"model": named.label, **spent} if as_json else None)
        return
    if as_json:
        console.emit({"model": named.label, "files": found, **spent})
    else:
        for one in found:
            view.show_written(one, limit)
    if not whole:
        console.warn("functions unscored: the sandbox failed on them; the same command tries again")
        raise typer.Exit(console.EXIT_ENVIRONMENT)


@dataclass
class _File:
    """A file's functions that may be tested; why the others are not; the asserts of each that exist, and how many of
    the test files' could not be read, by reason; what is known of each function in the end."""

    path: Path
    functions: list[Function]
    faults: dict[str, str]
    existing: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    studied: list[Studied] = field(default_factory=list)


def _files(target: Path, suites: Sequence[Path], out: Path, only_read: bool) -> list[_File]:
    """The files of the target that have a function, or tests of one that is gone. only_read: nothing is written."""
    from codea1_cli.data.sources.python_folder import PythonFolder
    from codea1_cli.evals.test_generation.entries import read_tests
    from codea1_cli.evals.test_generation.pytest_files import check_distinct, path_of_tests
    from codea1_cli.files import user_path

    if not (target := user_path(target)).exists():
        raise UserError(f"no such file or folder: {target}", hint="a Python file, or a folder of them")
    check_folder(out, "--out")
    texts = [text for suite in suites for text in read_tests(user_path(suite))]
    paths = PythonFolder(target).files if (whole := target.is_dir()) else [target]
    files = [_file(path, texts, out, whole, only_read) for path in paths]
    files = [file for file in files if file.functions or file.faults or path_of_tests(file.path, out).exists()]
    if not files:
        hint = "methods and nested functions are not tested: a function `def f(...):` at the left margin is"
        raise UserError(f"{target} has no function at its top level", hint=hint)
    if not only_read:
        check_writable(out, "--out")
        check_distinct([file.path for file in files], out)
    return files


def _file(path: Path, texts: Sequence[str], out: Path, one_of_many: bool, only_read: bool) -> _File:
    from codea1_cli.cli.write_tests_view import unread_of
    from codea1_cli.data.sources.python_folder import doctests
    from codea1_cli.evals.test_generation import functions_of, untestable
    from codea1_cli.evals.test_generation.entries import reserved, unimportable
    from codea1_cli.evals.test_generation.pytest_files import written_before
    from codea1_cli.extract.pytests import convert_tests
    from codea1_cli.files import parse_source
    from codea1_cli.judging.judge import well_formed

    try:
        source, _ = parse_source(path)
    except UserError as error:
        if not one_of_many:
            raise
        return _File(path, [], {path.name: error.what})
    file = _File(path, [], untestable(source))
    file.faults |= {one.name: why for one in functions_of(source, path.as_posix()) if (why := reserved(one.name))}
    if why := unimportable(path):
        return replace(file, faults=file.faults | {one.name: why for one in functions_of(source, path.as_posix())})
    modules = [text for text in (*texts, written_before(path, out, only_read)) if text]
    read = []
    for one in (one for one in functions_of(source, path.as_posix()) if one.name not in file.faults):
        read.append(converted := convert_tests("", one.name, modules))
        examples = well_formed([doctests(one.description, set())[0]], one.name)
        file.existing[one.name] = [*converted.tests, *converted.contrary]
        file.functions.append(replace(one, calls=(*converted.tests, *(example.source for example in examples))))
    file.unread = unread_of(read)
    return file


def _leave_broken(files: Sequence[_File], scorer: Scorer, workers: int) -> None:
    broken = scorer.faults([one for file in files for one in file.functions], workers)
    for file in files:
        file.faults |= {one.name: f"it does not load: {broken[one.id]}" for one in file.functions if one.id in broken}
        file.functions = [one for one in file.functions if one.id not in broken]


def _alarms(
    files: Sequence[_File], texts: Sequence[list[str]], student: Student, workers: int, bar: Any
) -> list[tuple[Path, Alarm]] | None:
    """All alarms, those that most samples agree on first, with their files, which learn of the functions that no call
    could say anything of; None: the sandbox failed."""
    from codea1_cli.sandbox.base import in_order

    jobs = list(zip([(file, one) for file in files for one in file.functions], texts, strict=True))
    alarms: list[tuple[Path, Alarm]] = []
    judged = in_order(lambda job: student.alarms(job[0][1], job[1], job[0][0].existing[job[0][1].name]), jobs, workers)
    for done, (((file, one), _), found) in enumerate(judged):
        if found is None:
            return None
        alarms += [(file.path, alarm) for alarm in found[0]]
        file.faults |= {one.name: found[1]} if found[1] else {}
        bar("running", done + 1, len(jobs))
    return sorted(alarms, key=lambda pair: pair[1].rank)


def _written(file: _File, found: dict[str, Any]) -> dict[str, Any]:
    """What was written, with what is known of the file besides."""
    faults = file.faults | {one.function.name: one.fault for one in file.studied if one.fault}
    return {**found, "unread": file.unread, "not_tested": faults}


def _study(files: Sequence[_File], texts: Sequence[list[str]], student: Student, workers: int, bar: Any) -> None:
    from codea1_cli.sandbox.base import in_order

    replies = iter(texts)
    jobs = [(file, one, next(replies)) for file in files for one in file.functions]
    studied = in_order(lambda job: student.study(job[1], job[2], job[0].existing[job[1].name]), jobs, workers)
    for done, ((file, _, _), one) in enumerate(studied):
        file.studied.append(one)
        bar("running", done + 1, len(jobs))


def _sampled(
    functions: Sequence[Function],
    model: ModelRef,
    settings: SamplingSettings,
    tests: int,
    engine: str,
    kept: Path,
    bar: Any,
) -> list[list[str]]:
    from codea1_cli.evals.test_generation.sampling import sample_replies
    from codea1_cli.models.sampler import context_of, open_sampler

    if not functions:
        return []
    room = (context_of(model) or 16_384) - settings.max_new_tokens
    sampler = open_sampler(model, engine, kept)
    try:
        found = list[list[str]]()
        shown = [(one.problem, one.shown or one.program) for one in functions]
        for replies in sample_replies(sampler, shown, tests, settings, room):
            found.append(replies)
            bar("sampling", len(found), len(functions))
        return found
    finally:
        sampler.close()
