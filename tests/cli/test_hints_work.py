"""Every hint works when it is typed: those in the source name commands, options and keys that exist, and each command
that the source offers is brought up by a mistake or a state, and run from what that left."""

import ast
import asyncio
import gzip
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import codea1_cli
from codea1_cli import engine, errors
from codea1_cli.cli import app, train
from codea1_cli.cli.console import run_app
from codea1_cli.cli.eval_code_view import _way_out
from codea1_cli.engine.resume import book_state
from codea1_cli.game.mistake_book import Book
from codea1_cli.mistakes import MistakeStore
from codea1_cli.problems.problem import read_problems, write_problems
from codea1_cli.recipe.files import all_keys, load_recipe, recipe_text
from codea1_cli.runs import tracking
from codea1_cli.runs.checkpoints import COMMITTED, commit_note
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunOutcome
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.tiny import problems_path
from tests.cli.fake_run import PROBLEMS
from tests.evals.evalplus.conftest import TASKS

SOURCE = Path(codea1_cli.__file__).parent
ROOT_COMMAND: Any = typer.main.get_command(app)
FOREIGN = {"--extra", "--shm-size", "--help"}  # of uv, docker and every command


def leaves(command: Any = ROOT_COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    for name, child in (children or {}).items():
        yield from leaves(child, (*path, name))


COMMANDS = dict(leaves())
OPTIONS = {
    name for command in COMMANDS.values() for param in command.params for name in [*param.opts, *param.secondary_opts]
}


def hints() -> Iterator[tuple[str, str]]:
    """(place, text) of every hint in the source; what an f-string puts in is `X`."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            found: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "")
                found = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
                if re.search(r"(Error|Fault|Failed|Outage)$", name):
                    found += node.args[1:2]
                elif name == "Check":  # of doctor
                    found += node.args[3:4]
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "hint":
                found = [node.value]
            for value in found:
                for part in ast.walk(value):
                    if isinstance(part, ast.JoinedStr):
                        text = "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in part.values)
                        yield f"{file.relative_to(SOURCE)}:{node.lineno}", text
                    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{file.relative_to(SOURCE)}:{node.lineno}", part.value


def typed() -> Iterator[tuple[str, list[str]]]:
    """(place, words) of every command that the source builds to be typed; a word that is not written out is `X`."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("command", "typed") and node.args:
                words = [str(a.value) if isinstance(a, ast.Constant) else "X" for a in node.args]
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", words


def known(words: list[str]) -> bool:
    """Whether the words begin with a command (or a group of them), and every option behind it is one of its own."""
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    for path, command in COMMANDS.items():
        if all(word in (part, "X") for word, part in zip(words, path, strict=False)):
            own = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
            if options <= {*own, "--help"}:
                return True
    return False


def test_every_hint_names_what_there_is() -> None:
    wrong = []
    for place, text in hints():
        commands = re.findall(r"`codea1 ([^`]*)`", text)
        wrong += [f"{place}: {words}" for words in commands if not known(shlex.split(words))]
        strangers = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - OPTIONS - FOREIGN
        wrong += [f"{place}: {name}" for name in strangers]
        sections = {key.partition(".")[0] for key in all_keys() if "." in key}
        keys = re.findall(r"(?<![\w.{/])([a-z]+\.[a-z_0-9]+)(?![\w./(])", text)
        wrong += [
            f"{place}: {key}"
            for key in keys
            if key.partition(".")[0] in sections and key not in all_keys() and ".json" not in key
        ]
        if "codea1 " in re.sub(r"`[^`]*`", "", text):
            wrong.append(f"{place}: a command without backticks: {text}")
    wrong += [f"{place}: {words}" for place, words in typed() if not known(words)]
    assert not wrong, "\n".join(wrong)


@cache
def offered() -> dict[str, str]:
    """The commands that the source offers, by place: `X` for a call of `command`, whose words are made as it runs, else
    the text that holds them."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        silent |= {id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg == "help"}
        name = file.relative_to(SOURCE)
        for node in nodes:
            place = f"{name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("command", "typed") and node.args:
                found[place] = "X"
            text = node.value if isinstance(node, ast.Constant) and id(node) not in silent else ""
            if isinstance(text, str) and re.search("(`|next: )codea1 ", text):
                found[place] = text
    return found


MADE: dict[str, set[str]] = {}  # by the text of a command: the places that made it
PLAIN = errors.command
# Commands that were run, and say the same whatever came before; two have tests of their own.
ONCE = {"codea1 sandbox check", "codea1 doctor"}
RUN: set[str] = set()  # the places whose command was run
ROWS: set[str] = set()  # the rows that were tried


def recording(*words: object) -> str:
    """Stands in for `errors.command`."""
    frame = sys._getframe(1)
    text = PLAIN(*words)
    if frame.f_code.co_filename.startswith(str(SOURCE)):
        place = Path(frame.f_code.co_filename).relative_to(SOURCE)
        MADE.setdefault(text, set()).add(f"{place}:{frame.f_lineno}")
    return text


def run_hints(call: Any, said: str, otherwise: list[str] | None = None) -> list[str]:
    """Runs each command that is offered, in its order; returns them. `otherwise`: what to type again after `mkdir`."""
    commands = [*re.findall(r"`((?:codea1|mkdir) [^`]*)`", said), *re.findall(r"next: (codea1 .*)", said)]
    for one in commands:
        program, *rest = shlex.split(one)
        if one in ONCE:
            continue
        if program == "mkdir":
            Path(rest[-1]).mkdir(parents=True)
            rest = otherwise or []
        done = call(app, *rest)
        assert done.code == 0, (one, done.err)
        if one not in MADE:
            ONCE.add(one)
        RUN.update(MADE.get(one, ()))
    RUN.update(place for place, text in offered().items() if text != "X" and text.strip() in said)
    return commands


@pytest.fixture
def ground(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """The run `run é 1` at step 3 of 6, to go on with; whatever a command would train is taken for trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CODEA1_BENCHMARKS", str(tmp_path / "benchmarks"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.py").write_text(OWN)
    release = tmp_path / "benchmarks" / "humaneval_plus.jsonl.gz"
    release.parent.mkdir(parents=True)
    release.write_bytes(gzip.compress("".join(json.dumps(task) + "\n" for task in TASKS).encode()))
    monkeypatch.setattr("codea1_cli.engine.run_setup.check_enough", lambda *_: None)  # the run has few problems
    monkeypatch.setattr("codea1_cli.cli.train._train", lambda *_: 0)
    monkeypatch.setattr("codea1_cli.evals.bigcodebench.environment.EnvironmentPlan.make", lambda _: None)
    monkeypatch.setattr("codea1_cli.cli.console.confirm", lambda *_: True)
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "codea1_cli"]:
        for name, value in vars(module).copy().items():
            if value is PLAIN:
                monkeypatch.setattr(module, name, recording)
    there = RunDir(run.path.rename(run.path.with_name("run é 1")))
    train = str(run.path.parent / "problems.jsonl")
    there.recipe_file.write_text(
        recipe_text(load_recipe("tiny", [f"data.train={train}", "train.max_steps=6", "train.problems_per_step=2"]))
    )
    there.note(problem_ids=[problem.id for problem in PROBLEMS], devices={}, data={}, total_steps=6)
    for step in there.committed_steps():
        with MistakeStore(there.mistakes_file, read_only=True) as store:
            books = {pid: Book(tuple(entries)) for pid, entries in store.all_books(step).items()}
        folder = there.checkpoint(step)
        (folder / "arena" / "state.json").write_text(json.dumps({"step": step, "book": book_state(books)}))
        (folder / COMMITTED).unlink()
        (folder / COMMITTED).write_text(commit_note(folder, step))
    monkeypatch.delenv("CODEA1_RUNS")
    return there


# What a user may type wrong; `{run}` is a folder of runs with the run `run é 1`, `{tmp}` a folder that is not there.
OWN = 'def double(x: int) -> int:\n    """Return x twice.\n\n    >>> double(2)\n    4\n    """\n    return x + x\n'
MISTAKES = {
    "no recipe": "train",
    "no recipe for a run": "train --run 'run é 1' --runs {run}",
    "a run that exists": "train --recipe tiny --run 'run é 1' --runs {run} --no-preflight",
    "a misspelt recipe": "train --recipe tny",
    "a misspelt key": "train --recipe tiny train.epochz=1 --dry-run",
    "an alias": "train --recipe tiny train.lr=0.1 --dry-run",
    "a key of another section": "train --recipe tiny batch_size=12 --dry-run",
    "a dry run": "train --recipe tiny --dry-run --run 'a b' --runs {tmp} --max-steps 3 --no-preflight seed=2",
    "no runs": "runs list --runs {tmp}'/é x'",
    "no run to show": "runs show --runs {tmp}'/é x'",
    "a misspelt run": "runs show 'run é 2' --runs {run}",
    "an unknown run": "runs show zzzzzz --runs {run}",
    "the whole of none": "runs prune --whole --runs {run}",
    "a misspelt problem": "mistakes inspect 'basic/doubel it:1' --runs {run}",
    "an unknown problem": "mistakes inspect zzzzzz --runs {run}",
    "an unknown problem to export": "mistakes export --problem zzzzzz --runs {run}",
    "the book": "mistakes list --runs {run}",
    "an export without a file": "mistakes export --json --runs {run}",
    "an export into no folder": "mistakes export --to {tmp}'/a é/x.jsonl' --runs {run}",
    "a misspelt command": "mistaeks list",
    "an unknown benchmark": "eval-code livecodebench",
    "a misspelt option": "runs list --jsn",
    "a misspelt layer": "sandbox check --require seccmp",
    "a misspelt source": "prepare-data mbp --out {tmp}/o",
    "an unknown step": "export --role code --to {tmp}/o --step 9 --runs {run}",
    "a step that is done": "train --run 'run é 1' --runs {run} --resume --max-steps 2 train.max_steps=8",
    "all steps done": "train --run 'run é 1' --runs {run} --resume train.max_steps=3",
    "a GPU that is not there": "train --recipe tiny --dry-run code.gpus=1",
    "too much for the machine": "train --recipe tiny --dry-run train.tokens_per_micro_batch=10000000 "
    "code.max_completion_tokens=1000000",
    "a folder that holds no model": "train --recipe tiny --dry-run model={run}",
    "Python files to train on": "train --recipe tiny --dry-run data.train=mine",
    "one folder to compare": "eval-tests compare {tmp}",
    "what recipes there are": "recipes list",
    "a benchmark that needs no interpreter": "eval-code setup humaneval",
    "what a setup would do": "eval-code setup bigcodebench --dry-run --to {tmp}/é",
    "a data set without a network": "prepare-data mbpp --out {tmp}/o",
    "an unknown recipe key to see": "recipes show tiny train.zzz=1",
}  # fmt: skip


class Down:
    """A sandbox that answers nothing."""

    layers: dict[str, str] = {}  # noqa: RUF012

    def run(self, program: str, entry: str, calls: list[str], *_: Any, **__: Any) -> ProgramRun:
        return ProgramRun.unscored(len(calls), "down")

    def close(self) -> None: ...


def judge_that_is_down(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> Any:
    from codea1_cli.recipe import resources

    monkeypatch.setattr("codea1_cli.sandbox.make.make_sandbox", lambda *_: Down())
    return resources.open_step_judge(run.recipe(), run.path)


def near_misses_while_down(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from codea1_cli.evals.heldout import near_misses

    judge = judge_that_is_down(run, monkeypatch)
    monkeypatch.setattr(judge, "reference_fault", lambda _: None)
    near_misses(judge, PROBLEMS[0].model_copy(update={"tests": ["assert double(1) == 2"]}), 4)


def finish(run: RunDir, step: int, *overrides: str) -> None:
    from codea1_cli.cli.train_view import TrainView

    with TrainView(load_recipe("tiny", overrides), run, {"code": [None], "test": [None]}) as view:
        view.finish(RunOutcome(step, 6, 6, False, {}))


def damage_all(run: RunDir) -> None:
    from codea1_cli.engine.resume import resume_point

    for step in run.committed_steps():
        (run.checkpoint(step) / "code" / "optimizer.pt").unlink()
    resume_point(run)


def saves_nothing(run: RunDir) -> None:
    from codea1_cli.engine.resume import resume_point
    from codea1_cli.recipe.files import recipe_text

    recipe = run.recipe()
    recipe.checkpoint.every = None
    run.recipe_file.write_text(recipe_text(recipe))
    shutil.rmtree(run.path / "checkpoints")
    resume_point(run)


def pairs_are_made(run: RunDir) -> None:
    words = f"make-pairs builtin:tiny/train --role code --limit 2 --workers 1 --out {shlex.quote(str(run.path / 'pairs é'))}"
    run_app(app, shlex.split(words))


def problems_get_tests(run: RunDir) -> None:
    from codea1_cli.cli.write_tests_view import show_problems

    file, counts = run.path / "golden é.jsonl", dict.fromkeys(("with_tests", "tests", "asserts", "duplicates"), 2)
    write_problems(file, read_problems(problems_path("train"), 2))
    show_problems({"model": "m", "problems": 2, "without": {}, "with_reference": 0, **counts}, file, as_json=False)


def too_long_pairs(run: RunDir) -> None:
    from codea1_cli.data.pairs import Pair
    from codea1_cli.engine.sft import PairSetup

    pairs = [Pair(f"code/{n}", [{"role": "user", "content": "q"}], "a") for n in range(3)]
    PairSetup(run.recipe(), run).fresh(pairs, {}, [(9999, 1), (9999, 1), (1, 1)], {})


def refuse_all_replies(run: RunDir) -> None:
    from codea1_cli.engine.preflight import PreflightCounts, PreflightGate

    async def post() -> None:
        gate = PreflightGate(run.recipe(), run, ["code[0]"], {})
        gate.post("code[0]", "code", PreflightCounts(replies=8, clipped=8), [])
        await gate.verdict()

    asyncio.run(post())


def too_long_prompts(run: RunDir) -> None:
    from codea1_cli.engine.run_setup import RunSetup

    RunSetup(run.recipe(), run).fresh(PROBLEMS, {}, [9, 9999, 9999, 9999], {})


def many_unscored(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from codea1_cli.engine.step_state import check_outage

    unscored = SimpleNamespace(game=SimpleNamespace(loaded=None, suites=()))
    problems = [SimpleNamespace(candidates=[unscored])]
    check_outage(3, problems, judge_that_is_down(run, monkeypatch), 0.5, run)  # type: ignore[arg-type]


def verify_while_down(monkeypatch: pytest.MonkeyPatch) -> None:
    from codea1_cli.data import verify
    from codea1_cli.sandbox.base import Limits

    monkeypatch.setattr(verify.time, "sleep", lambda _: None)
    verifier = verify.Verifier(Down(), Limits())
    for _ in range(9):
        verifier.check(PROBLEMS[0])


def little_room(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> str | None:
    from codea1_cli import doctor

    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))
    return doctor._disk(run.path.parent).hint


def changed_samples(folder: Path) -> None:
    from codea1_cli.evals.results import FORMAT, read_result, result_file

    samples = folder / "a é.jsonl"
    samples.write_text(json.dumps({"task_id": "HumanEval/0", "solution": "def add(a, b): return a + b"}))
    result = {"format": FORMAT, "benchmark": "humaneval", "columns": [], "tasks": {}, "samples_hash": "another"}
    result_file(samples).write_text(json.dumps(result))
    read_result(samples)


def canaries_fail(monkeypatch: pytest.MonkeyPatch) -> str | None:
    from codea1_cli import doctor

    monkeypatch.setattr("codea1_cli.sandbox.make.make_sandbox", lambda *_: Down())
    return next(check.hint for check in doctor.sandbox_checks() if check.hint)


def export_while_down(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from codea1_cli.mistakes.replay import answered_cases

    with MistakeStore(run.mistakes_file, read_only=True) as store:
        rows = {pid: store.live(pid) for pid in run.problems()}
    answered_cases(
        judge_that_is_down(run, monkeypatch).judge, {pid: row for pid, row in rows.items() if row}, run.problems()
    )


def problems_are_prepared(folder: Path) -> None:
    from codea1_cli.cli.prepare_data import show_summary
    from codea1_cli.data import Card

    (folder / "é").mkdir()
    write_problems(folder / "é" / "train.jsonl", PROBLEMS)
    card = Card("", "", "", 0, {}, {}, kept=4, splits={"train": 4})
    show_summary(card, 0, folder / "é", benchmark=False)


# What a run, a sandbox, a file or a machine has come to, and what is said of it: a hint returned, printed or raised.
STATES = {
    "nothing is saved": lambda run, *_: engine.resume_hint(RunDir(run.path.rename(run.path.with_name("x")))),
    "a step is saved": lambda run, *_: engine.resume_hint(run),
    "stopped at a saved step": lambda run, *_: train._stopped(run),
    "the run ends early": lambda run, *_: finish(run, 3),
    "the run is at its end": lambda run, *_: finish(run, 6),
    "a run without a Test LLM is at its end": lambda run, *_: finish(run, 6, "method=golden-tests"),
    "no checkpoint is whole": lambda run, *_: damage_all(run),
    "a run saves nothing": lambda run, *_: saves_nothing(run),
    "pairs are made": lambda run, *_: pairs_are_made(run),
    "tests of problems are written": lambda run, *_: problems_get_tests(run),
    "most pairs are too long": lambda run, *_: too_long_pairs(run),
    "the pre-flight refuses": lambda run, *_: refuse_all_replies(run),
    "most prompts are too long": lambda run, *_: too_long_prompts(run),
    "many candidates are unscored": lambda run, patch: many_unscored(run, patch),
    "the sandbox cannot judge": lambda run, patch: judge_that_is_down(run, patch).canary(),
    "the sandbox fails on a reference": lambda run, patch: judge_that_is_down(run, patch).reference_fault(PROBLEMS[0]),
    "the sandbox fails on every near miss": lambda run, patch: near_misses_while_down(run, patch),
    "the sandbox fails while problems are verified": lambda _, patch: verify_while_down(patch),
    "the disk is nearly full": lambda run, patch: little_room(run, patch),
    "samples were changed after they were scored": lambda run, _: changed_samples(run.path),
    "the sandbox tells no program from another": lambda _, patch: canaries_fail(patch),
    "nothing can be replayed for an export": lambda run, patch: export_while_down(run, patch),
    "libraries of a benchmark are missing": lambda *_: _way_out("bigcodebench"),
    "problems are prepared": lambda run, _: problems_are_prepared(run.path),
    "a tracker is given up": lambda run, _: tracking.way_out(run, "tensorboard"),
}


@pytest.mark.xdist_group("hints")
@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_mistake_hints_at_works(name: str, call: Any, ground: RunDir, tmp_path: Path) -> None:
    ROWS.add(name)
    words = shlex.split(
        MISTAKES[name].format(run=shlex.quote(str(ground.path.parent)), tmp=shlex.quote(str(tmp_path / "empty")))
    )
    done = call(app, *words)
    assert "unexpected" not in done.err
    said = "\n".join(line for line in done.err.splitlines() if "hint: " in line or "next: " in line)
    assert said
    commands = run_hints(call, said, words)
    if meant := re.search(r"did you mean (.*)\?", said):
        for better in shlex.split(meant[1].replace(" or ", " ")):
            assert any(tried(call, words, place, better) for place in range(len(words))), better
    elif not commands:
        assert re.search(r"one of |--\w+|see ", said), said


def tried(call: Any, words: list[str], place: int, better: str) -> bool:
    """Whether the command is understood with one word, or the key of one override, put right."""
    key, equals, value = words[place].partition("=")
    again = [*words[:place], f"{better}{equals}{value}" if equals else better, *words[place + 1 :]]
    done = call(app, *again, *(["--help"] if not equals and words[0] in ("prepare-data", "sandbox") else []))
    return done.code in (0, 3) and key != better


@pytest.mark.xdist_group("hints")
@pytest.mark.parametrize("name", STATES)
def test_what_is_said_of_a_state_works(
    name: str, call: Any, ground: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ROWS.add(name)
    with monkeypatch.context() as broken:
        try:
            hint = STATES[name](ground, broken)
        except errors.CodeA1Error as error:
            hint = error.hint
    assert run_hints(call, hint or capsys.readouterr().err)


@pytest.mark.xdist_group("hints")
def test_every_command_that_the_source_offers_was_run() -> None:
    if {*MISTAKES, *STATES} - ROWS:
        pytest.skip("it looks at what the tests above ran: run the whole file")
    left = sorted(f"{place}: {text}" for place, text in offered().items() if place not in RUN)
    assert not left, "\n".join(left)
