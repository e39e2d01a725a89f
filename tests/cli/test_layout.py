"""What people read fits 80 columns or folds where something ends: no figure, name or command is ever broken."""

import json

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from codea1_cli.cli import app, console
from codea1_cli.cli.eval_code_view import show_comparison as show_code_comparison
from codea1_cli.cli.eval_code_view import show_result
from codea1_cli.cli.eval_tests import show_comparison, show_file, show_ult
from codea1_cli.cli.layout import Table, folded, join_figures
from codea1_cli.cli.views import show_problem
from codea1_cli.evals.results import Compared
from codea1_cli.evals.statistics import Interval
from codea1_cli.evals.test_generation.results import Difference
from codea1_cli.mistakes import MistakeStore
from codea1_cli.mistakes.inspect import (
    FailingCandidate,
    Latest,
    LiveTest,
    PoolProgram,
    ProblemView,
    RetiredTest,
    TrendPoint,
)
from codea1_cli.mistakes.replay import Replayed
from tests.cli.fake_run import make_run

WIDTH = 80
LETTERS = st.characters(exclude_categories=("C", "Z"), exclude_characters="`")
NAMES = st.text(LETTERS | st.sampled_from("/-_:.é漢🙂"), min_size=1, max_size=130)
NUMBERS = st.one_of(st.integers(-(10**12), 10**12).map(str), st.floats(0, 1e6).map(lambda value: f"{value:.4g}"))
TEXTS = st.lists(NAMES, max_size=12).map(" ".join)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """80 columns; a console is made once per process and keeps its width."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    console._console.cache_clear()
    yield
    console._console.cache_clear()


def check(shown: str, *whole: str, width: int = WIDTH) -> None:
    """Each of `whole` stands on one line, and a line is too long only where it holds one of them or one word alone."""
    lines = shown.splitlines()
    for text in whole:
        assert any(console.printable(text) in line for line in lines), (text, shown)
    alone = {console.printable(text).strip() for text in whole}
    for line in lines:
        fits = cell_len(line) <= width or line.strip() in alone or " " not in line.strip()
        assert fits, (cell_len(line), line)


KINDS = st.lists(st.sampled_from(["<", ">", ""]), min_size=1, max_size=9)


@st.composite
def tables(draw):
    kinds = draw(KINDS)
    cell = {"<": TEXTS, ">": NUMBERS, "": TEXTS}
    heads = [kind + draw(st.text("ab", min_size=1, max_size=9)) for kind in kinds]
    rows = draw(st.lists(st.tuples(*(cell[kind] for kind in kinds)), max_size=4))
    return heads, rows


@settings(max_examples=15, phases=[Phase.generate])
@given(tables(), st.sampled_from([40, WIDTH, 200]))
def test_a_table_of_anything_breaks_neither_figures_nor_words(made, width):
    from rich.console import Console

    heads, rows = made
    shown = Console(width=width, force_terminal=True, color_system=None)
    table = Table(None, heads, [[console.cell(text) for text in row] for row in rows], False)
    with shown.capture() as captured:
        shown.print(table, crop=False)
    figure_or_word = [text for row in rows for text, head in zip(row, heads, strict=True) if head[0] in "<>"]
    check(
        captured.get(), *figure_or_word, *(word for row in rows for text in row for word in text.split()), width=width
    )


def test_in_a_pipe_a_row_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS")
    console._console.cache_clear()
    console.show(console.table("t", ("<name", ">count", "text"), [("n" * 300, 1, "word " * 100), ("m", 22, "x")]))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["t", "name", "n" * 300, "m"]


def test_a_frame_is_drawn_where_it_fits(capsys):
    rows = [("a", 1), ("b", 22)]
    console.show(console.table("t", ("name", ">count"), rows, framed=True))
    shown = [line.strip("│┃ ") for line in capsys.readouterr().out.splitlines()]
    assert [line.replace("│", "").split() for line in shown if line[:1] in "ab"] == [["a", "1"], ["b", "22"]]
    assert "a    │     1" in shown
    console.show(console.table("t", ("name", ">count"), [("a" * 90, 1)], framed=True))
    assert capsys.readouterr().out.splitlines() == ["t", "name" + " " * 71 + "count", "a" * 90, " " * 79 + "1"]


def test_a_command_stays_whole_wherever_its_line_is_folded():
    command = "codea1 train --run a-run-with-a-long-name --runs /a/folder/with/a/long/name --resume"
    said = Text(f"some words that come before `{command}` and after it; next: {command} --once")
    lines = [line.plain for line in folded(said, WIDTH)]
    assert lines[1] == f"`{command}`"
    assert lines[-1] == f"{command} --once"


def test_a_step_folds_between_groups_and_a_longer_group_between_figures():
    groups = ["step  3/26", "code reward 0.850  signal 100%", "test reward 0.284  false alarm 80%", "12.1 s  4:20 left"]
    assert join_figures(groups, 200) == "  ".join(groups)
    assert join_figures(groups, 50).splitlines() == [f"{groups[0]}  {groups[1]}", f"  {groups[2]}", f"  {groups[3]}"]
    assert join_figures(groups, 24).splitlines() == [
        "step  3/26", "  code reward 0.850", "  signal 100%", "  test reward 0.284", "  false alarm 80%",
        "  12.1 s  4:20 left",
    ]  # fmt: skip


# -- the views ---------------------------------------------------------------------------------------------------------
@settings(max_examples=4, phases=[Phase.generate])
@given(NAMES, TEXTS, TEXTS, st.integers(1, 10**9))
def test_a_problem_of_the_book(pid, test, got, count):
    latest = Latest(count, 3, "failed", got, got, 2, 8, "def f(): pass")
    seen = console._console(False)
    with seen.capture() as captured:
        show_problem(
            ProblemView(
                pid, f"{got}\n{got}", "f",
                [LiveTest(test, count, 1, count, latest), *[LiveTest(test, 1, 1, 2, None)] * 30],
                FailingCandidate(3, 1, f"def f():\n    return {test!r}", test, "failed", got, [2]),
                [TrendPoint(step, step, count) for step in range(1, 99)],
                [RetiredTest(test, count, 1, 2)],
                [PoolProgram("p1", "def f():\n    return 1", 3, test, True, 3, 1, count, ["0.1"])],
            ),
            [Replayed(count, 0, test, "failed", "passed", got, got, 3)],
            20,
        )  # fmt: skip
    check(captured.get(), pid, test, str(count), f"❱ 2     return {test!r}", f"own test {test}", *got.split())
    assert "and 11 more: --limit 0 shows all" in captured.get()


@settings(max_examples=4, phases=[Phase.generate])
@given(NAMES, st.lists(NAMES, min_size=25, max_size=40, unique=True), TEXTS)
def test_what_a_model_solves(label, tasks, why):
    told = {"pass@1": 0.7317, "pass@10": 0.91, "interval": (0.66, 0.8), "tasks": 164}
    result = {
        "title": "HumanEval+", "label": label, "benchmark": "humaneval", "columns": ["base", "plus"],
        "figures": {"base": told, "plus": told | {"valid": told}}, "samples_file": f"/x/{label}.jsonl",
        "references": {"rate": 0.5, "tasks": 164, "not_run": [], "lacking": {}, "failing": dict.fromkeys(tasks, why)},
        "tasks": {task: {"n": 8, "base": 7, "plus": 123456, "timeouts": 1} for task in tasks}, "seconds":
        {"references": 1.0, "scoring": 2.0},
    }  # fmt: skip
    seen = console._console(False)
    with seen.capture() as captured:
        show_result(result, True, WIDTH)
        show_code_comparison(
            result, result, [Compared("plus", 164, 0.5, 0.7, Interval(0.2, -0.1, 0.3, 0.95), tasks, [])]
        )
    check(captured.get(), "66.0% to 80.0%", "-10.0 to +30.0", *tasks, *label.split(), *why.split())
    assert f"and {len(tasks) - 20} more: --json lists all" in " ".join(captured.get().split())


@settings(max_examples=4, phases=[Phase.generate])
@given(NAMES, st.lists(NAMES, min_size=1, max_size=30, unique=True), TEXTS)
def test_what_suites_are_worth(label, functions, detail):
    interval = {"low": 12.3, "high": 45.6}
    row = {"right": 3, "valid": 4, "asserts": 8, "invalid": {"not an assert": 2}, "unscored": False}
    row |= {"lines": 12, "all_lines": 34, "branches": 5, "all_branches": 6, "killed": 700, "mutants": 1234}
    keys = "validity valid_tests right_tests stated_correctly mutation mutation_by_calls kill_rate line_coverage"
    values = dict.fromkeys([*keys.split(), "branch_coverage"], 43.21)
    counts = dict.fromkeys(("functions", "mutants", "mutation_functions", "kill_rate_functions"), 3909)
    found = {
        "protocols": {"one-shot": values | counts | {"intervals": {"validity": interval, "kill rate": interval}}},
        "functions": {"one-shot": [{"id": name, **row} for name in functions]}, "label": label, "folder": label,
        "settings": {"scoring": {"tests_per_suite": 8}}, "not_loading": dict.fromkeys(functions, detail),
        "unknown_suites": functions, "without_suite": [], "seconds": {"scoring": 2.5}, "tokens_per_second": 12.0,
    }  # fmt: skip
    one = Difference("one-shot", "mutation score of calls", 3909, 43.21, 54.32, -1.5, 12.75, functions, functions)
    survivors = [{"line": 3, "operator": "<", "diff": f"---\n+++\n-{detail}\n+{detail} x"}] * 40
    test = {"outcome": "failed", "test": f"assert f({detail!r})", "detail": detail}
    file = {"id": functions[0], "mutants": 99, "killed": 59, "passing": 0, "tests": [test], "survivors": survivors}
    seen = console._console(False)
    with seen.capture() as captured:
        show_ult(found, True)
        show_comparison([one], label, label)
        show_file(found | {"functions": [file]})
    check(
        captured.get(), "700/1234", "12.3 to 45.6", "-1.50 to +12.75", *functions, *label.split(), *detail.split(),
        f"-{detail}".rstrip(), f"+{detail} x",
    )  # fmt: skip


WILD = "a run/with a name that is far too long for any terminal: 漢字🙂 " + "x" * 90


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """Two runs, one with a long name, with a problem id as long, many steps, evaluations and tests."""
    root = tmp_path_factory.mktemp("runs")
    name, pid = WILD.replace("/", "-"), WILD
    for run in (make_run(root, name), make_run(root, "second")):
        lines = []
        for step in range(4, 60):
            arena = {"exposed_share": step / 123457, "false_alarm_share": 0.1234567, "book_tests": 10**9 + step}
            line = {"step": step, "code": {"reward": -step / 7}, "test": {"reward": 1e-9}, "arena": arena}
            lines.append(line | {"time": 1.0, "timing": {"step_s": 1234.5}})
            lines.append({"step": step, "eval": {"set": "heldout", "code": {"pass@1": step / 97}}})
        with open(run.metrics_file, "a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)
        with MistakeStore(run.mistakes_file) as store:
            store.append(60, [(pid, f"assert f({n}, '{'y' * 70}') == {n}", 1, "def f(): pass") for n in range(50)])
        run.note(skipped=[pid] * 40, environment={"x": "y" * 100}, command=["codea1", "train", "--run", run.name])
        (run.path / "evaluation").mkdir()
        for step in (0, 3):
            rows = [{"problem_id": pid, "passed": [True, step > 0], "unscored": 0}]
            (run.path / "evaluation" / f"step-{step}-code.json").write_text(json.dumps(rows))
    run.note(seed=123456789)
    return root, name, pid


@pytest.mark.parametrize(
    "words",
    [("runs", "list"), ("runs", "show"), ("mistakes", "list"), ("mistakes", "inspect"), ("compare",), ("recipes", "list"),
     ("recipes", "show", "tiny"), ("plan", "--recipe", "7b", "--gpu", "h200")],
    ids=" ".join,
)  # fmt: skip
def test_a_command_over_wild_names(wild, call, words, monkeypatch):
    root, name, pid = wild
    monkeypatch.setenv("CODEA1_RUNS", str(root))
    tests = [f"assert f({n}, '{'y' * 70}') == {n}" for n in range(50)]
    run = f"--run={name}" if words[0] == "mistakes" else name
    more = {
        "runs show": [name],
        "mistakes list": [run],
        "mistakes inspect": [run, "--limit=0", pid],
        "compare": [name, "second"],
    }
    done = call(app, *words, *more.get(" ".join(words), ()))
    assert done.code == 0, done.err
    shown = {"runs list": [name, "59/3"], "runs show": [f"{name}:", "-8.286", "1e-09", "1000000059", "1234"]}
    shown |= {"mistakes list": [pid, "50", tests[0], *name.split()], "mistakes inspect": [pid, *tests]}
    shown |= {"compare": [name, "123456789", "+50.0"], "plan": ["GiB"]}
    whole = shown.get(" ".join(words[:2]), shown.get(words[0], []))
    commands = [line.strip() for line in done.out.splitlines() if line.strip().startswith("codea1 ")]
    check(done.out, *whole, *commands)
