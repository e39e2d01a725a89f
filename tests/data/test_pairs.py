"""Pairs of prompt and completion: as files hold them, and made of problems."""

import json
import random
import threading

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.cli.make_pairs import made_of, make_shown, pairs_ahead, recipe_pairs
from codea1_cli.data.pairs import MadePairs, PairOptions, Proposal, identity, make_pairs, model_names, read_pairs
from codea1_cli.errors import UserError
from codea1_cli.evals.wrong_programs import broken_programs
from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.methods.sft import asked_as
from codea1_cli.problems.problem import Problem, read_problems, write_problems
from codea1_cli.problems.prompts import code_messages, shown_code, shown_problem, test_messages
from codea1_cli.recipe.files import load_recipe
from codea1_cli.tiny import problems_path
from tests.judging.conftest import judge, sandbox

__all__ = ["judge", "sandbox"]

DOUBLE = Problem(
    id="double",
    question="Double n.",
    declaration="def double(n):",
    entry_point="double",
    reference="def double(n):\n    return n + n",
    tests=["assert double(3) == 6", "assert double(2) == 4", "assert double(-5) == -10"],
)
WRONG = "def double(n):\n    return n * n"


def suite(*lines):
    return "```python\n" + "\n".join(lines) + "\n```"


def test_a_file_holds_prompts_as_texts_or_chats_and_completions(tmp_path):
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    rows = [
        {"prompt": "u", "completion": "c"},
        {"prompt": chat, "completion": "c"},
        {"messages": [*chat, {"role": "assistant", "content": "c"}], "source": "mine"},
        {"prompt": chat, "completion": [{"role": "assistant", "content": "c"}]},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = read_pairs(file, "test")
    assert [pair.id for pair in pairs] == ["test/1", "test/2", "test/3", "test/4"]
    assert {pair.completion for pair in pairs} == {"c"}
    assert pairs[0].messages == chat[1:]
    assert [pair.messages for pair in pairs[1:]] == [chat] * 3


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "u"},
        {"completion": "c"},
        {"prompt": "u", "completion": ""},
        {"prompt": [], "completion": "c"},
        {"prompt": ["u"], "completion": "c"},
        {"messages": [{"role": "user", "content": "u"}]},
        {"messages": [{"role": "assistant", "content": "c"}]},
        {"prompt": "u", "completion": [{"role": "user", "content": "c"}]},
        {"prompt": [{"role": "user", "content": 1}], "completion": "c"},
    ],
)
def test_a_row_that_is_no_pair_is_named_with_its_line(tmp_path, row):
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"prompt": "u", "completion": "c"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UserError, match=r"pairs\.jsonl:2: not a pair") as caught:
        read_pairs(file, "code")
    assert "`completion`" in caught.value.hint
    for prompt in ("u\ud800", [{"role": "us\ud800er", "content": "u"}]):
        file.write_text(json.dumps({"prompt": prompt, "completion": "c"}))
        with pytest.raises(UserError, match=r"pairs\.jsonl:1: text that is not Unicode"):
            read_pairs(file, "code")
    file.write_text("")
    with pytest.raises(UserError, match="holds no pair"):
        read_pairs(file, "code")


def test_the_reference_becomes_a_pair_where_it_passes_its_own_tests(judge):
    broken = DOUBLE.model_copy(update={"id": "b", "reference": "def double(n):\n    raise ValueError"})
    bare = DOUBLE.model_copy(update={"id": "c", "reference": ""})
    untested = DOUBLE.model_copy(update={"id": "d", "tests": []})
    unread = DOUBLE.model_copy(update={"id": "e", "tests": ["assert double(2) + 1 == 5"]})
    denied = unread.model_copy(update={"id": "f", "tests": ["assert double(2) + 1 == 6"]})
    other = DOUBLE.model_copy(update={"id": "g", "tests": [*DOUBLE.tests, "assert double(7) == 15"]})
    chance = DOUBLE.model_copy(
        update={"id": "h", "reference": "import random\ndef double(n):\n    return random.random()"}
    )
    problems = [DOUBLE, broken, bare, untested, unread, denied, other, chance]
    made = make_pairs(problems, PairOptions("code"), judge)
    assert [row["problem_id"] for row in made.rows] == ["double", "d", "e"]
    assert made.without == {"its reference does not pass its tests": 4, "no reference": 1}
    assert made.untested == 1
    assert made.rows[0]["prompt"] == code_messages(DOUBLE)
    assert extract_code(made.rows[0]["completion"], "double") == DOUBLE.reference


def test_suites_break_the_program_of_their_prompt_and_state_what_the_reference_answers(judge):
    made = make_pairs([DOUBLE], PairOptions("test", tests_per_suite=4), judge)
    assert 1 <= len(made.rows) <= 2
    for row in made.rows:
        tests = parse_suite(row["completion"], "double")
        assert len({test.call for test in tests}) == len(tests) == 4
        argument = [int(test.call.partition("(")[2][:-1]) for test in tests]
        assert [test.stated.value for test in tests] == [2 * n for n in argument]
        program = row["prompt"][-1]["content"].partition("```python\n")[2].removesuffix("\n```")
        assert row["prompt"] == test_messages(DOUBLE, program, 4)
        names = {}
        exec(program, names)
        assert names["double"](argument[0]) != 2 * argument[0]  # the first one reveals the fault
    hidden = make_pairs([DOUBLE], PairOptions("test", tests_per_suite=4, white_box=False), judge)
    assert [row["prompt"] for row in hidden.rows] == [test_messages(DOUBLE, None, 4)]
    many = make_pairs([DOUBLE.model_copy(update={"tests": [], "extra_tests": []})], PairOptions("test"), judge)
    assert many.without == {"fewer than 8 usable tests": 1}


def test_a_slow_problem_holds_up_no_other_and_pairs_come_in_the_order_of_the_problems(judge, monkeypatch):
    def rows(problem, *_):
        if problem.id == "149":
            last.set()
        if problem.id == "0":
            seen.append(last.wait(10))
        return "none" if problem.id == "3" else [{"problem_id": problem.id}]

    last, seen, told = threading.Event(), [], []
    monkeypatch.setattr("codea1_cli.data.pairs._code_rows", rows)
    problems = [DOUBLE.model_copy(update={"id": str(number)}) for number in range(150)]
    made = make_pairs(problems, PairOptions("code"), judge, progress=lambda done, total: told.append(done))
    assert seen == [True]
    assert [row["problem_id"] for row in made.rows] == [str(number) for number in range(150) if number != 3]
    assert made.without == {"none": 1}
    assert told == list(range(1, 151))


def test_wrong_programs_run_side_by_side_and_none_in_vain(judge, monkeypatch):
    def check(program, *rest, **more):
        ran.append(program)
        return run(program, *rest, **more)

    run, ran = judge.check, []
    monkeypatch.setattr(judge, "check", check)
    wrong = [f"def double(n):\n    return {what}" for what in ("n - 1", "n + 2", "n * n", "n + 3", "3 * n")]
    problem = DOUBLE.model_copy(update={"meta": {"wrong": wrong}})
    found, _ = broken_programs(problem, judge, 3, 0, random.Random(0))
    assert list(found) == [wrong[1], wrong[3], wrong[0]]  # n * n fails what n + 2 fails
    assert sorted(ran) == sorted(wrong[:4])


def test_of_samples_only_what_holds_is_taken(judge):
    texts = [WRONG, "no program", f"So:\n```python\n{DOUBLE.reference}\n```\nDone.", DOUBLE.reference]
    made = make_pairs([DOUBLE], PairOptions("code"), judge, lambda problems: [[Proposal(text) for text in texts]])
    assert [row["completion"] for row in made.rows] == [f"```python\n{DOUBLE.reference}\n```"]
    good = ("assert double(3) == 6", "assert double(4) == 8")
    suites = [
        suite("assert double(3) == 6"),  # too few
        suite("assert double(3) == 6", "assert double(3) == 6"),  # one call
        suite("assert double(3) == 6", "assert double(4) == 9"),  # a wrong answer
        suite("assert double(2) == 4", "assert double(0) == 0"),  # the wrong program passes
        suite(*good, "assert double(5) == 11"),  # what follows the first K is left out
    ]
    options = PairOptions("test", tests_per_suite=2)
    made = make_pairs([DOUBLE], options, judge, lambda problems: [[Proposal(text, WRONG) for text in suites]])
    assert [row["completion"] for row in made.rows] == [suite(*good)]
    made = make_pairs([DOUBLE], options, judge, lambda problems: [[Proposal(text, WRONG) for text in suites[:4]]])
    assert made.without == {"no suite is valid, rightly stated and breaks a wrong program": 1}


def test_a_model_of_few_names_gets_pairs_in_them(judge):
    names = model_names("builtin:tiny")
    problem = read_problems(problems_path("train"), 1)[0].model_copy(update={"entry_point": "total"})
    reference = problem.reference.replace("solve(", "total(")
    problem = problem.model_copy(
        update={
            "reference": reference,
            "declaration": problem.declaration.replace("solve(", "total("),
            "tests": [test.replace("solve(", "total(") for test in problem.tests],
            "extra_tests": [],
        }
    )
    row = make_pairs([problem], PairOptions("code", names=names), judge).rows[0]
    assert row["prompt"] == code_messages(shown_problem(problem, names))
    assert extract_code(row["completion"], "solve") == shown_code(reference, "total", names).strip()


def test_a_folder_of_pairs_has_a_card_and_is_made_once(tmp_path, judge, monkeypatch):
    options, source = PairOptions("code"), {"data": "problems.jsonl"}
    bare = DOUBLE.model_copy(update={"id": "b", "reference": ""})
    card = make_shown(tmp_path / "pairs", [DOUBLE, bare], options, source, "make-pairs", judge)
    assert (card["problems"], card["with_pairs"], card["pairs"], card["without"]) == (2, 1, 1, {"no reference": 1})
    text = (tmp_path / "pairs" / "README.md").read_text()
    assert "1 pair for the Code LLM of 2 problems" in text
    assert "| no reference | 1 |" in text
    assert len(read_pairs(tmp_path / "pairs" / "pairs.jsonl", "code")) == 1
    monkeypatch.setattr("codea1_cli.data.pairs.make_pairs", None)
    assert make_shown(tmp_path / "pairs", [DOUBLE, bare], options, source, "make-pairs", judge) == card
    monkeypatch.undo()
    with pytest.raises(UserError, match="holds pairs made otherwise: make-pairs"):
        make_shown(tmp_path / "pairs", [DOUBLE], options, source, "make-pairs --limit 1", judge)
    assert (tmp_path / "pairs" / "README.md").read_text() == text
    with pytest.raises(UserError, match=r"none of 1 problem gave a pair .*no reference: 1"):
        make_shown(tmp_path / "none", [bare], options, source, "make-pairs", judge)


def test_the_runs_of_a_study_share_the_pairs_of_their_warm_up():
    keys = {identity(*made_of(load_recipe("tiny", [f"seed={seed}"]), "test", 30)) for seed in (0, 1, 2)}
    assert len(keys) == 1


def test_a_warm_up_asks_for_no_more_problems_than_it_takes_pairs_of():
    recipe = load_recipe("tiny")
    every = len(made_of(recipe, "test", None)[0])
    assert every == len(made_of(recipe, "test", 6 * every)[0])
    assert (
        len(made_of(recipe, "code", 12)[0]) == 5
    )  # each pair three times, and a quarter more for problems that give none
    assert len(made_of(recipe, "test", 12)[0]) == 3


def test_the_command_writes_over_nothing_and_its_card_has_what_was_typed(tmp_path, monkeypatch, capfd):
    words = ["make-pairs", "builtin:tiny/train", "--role", "test", "--tests-per-suite", "4", "--limit", "2", "--out"]
    full, fresh = tmp_path / "mine", tmp_path / "pairs"
    full.mkdir()
    (full / "README.md").write_text("mine")
    assert run_app(app, [*words, str(full)]) == 2
    assert "mine holds other files" in capfd.readouterr().err
    assert (full / "README.md").read_text() == "mine"
    assert run_app(app, [*words, str(fresh), "--model", "nope"]) == 2
    assert "--model nope has no effect" in capfd.readouterr().err
    made = MadePairs([{"prompt": "p", "completion": "c"}], 2)
    monkeypatch.setattr("codea1_cli.data.pairs.make_pairs", lambda *_: made)
    assert run_app(app, [*words, str(fresh), "--no-white-box", "--per-problem", "3", "--model", "builtin:tiny"]) == 0
    told = f"--recipe tiny method=sft sft.role=test sft.test={fresh}/pairs.jsonl game.white_box=false\n"
    assert told in capfd.readouterr().err
    typed = json.loads((fresh / "card.json").read_text())["command"]
    assert typed == (
        "codea1 make-pairs builtin:tiny/train --role test --out DIR --model builtin:tiny --per-problem 3 --tests-per-suite 4 "
        "--no-white-box --limit 2"
    )
    write_problems(tmp_path / "real.jsonl", [DOUBLE.model_copy(update={"tests": ["assert double({1: 2}) == 4"]})])
    real = ["make-pairs", str(tmp_path / "real.jsonl"), "--role", "test", "--out", str(tmp_path / "real")]
    assert run_app(app, real) == 0
    assert "--recipe 135m" in capfd.readouterr().err


def test_a_recipe_is_told_what_pairs_ask_for_that_it_does_not():
    game = load_recipe("tiny").game
    assert asked_as(game, 112, 4, True) == []
    assert asked_as(game, 112, 8, True) == ["game.tests_per_suite=8", "test.max_completion_tokens=224"]
    assert asked_as(game, 112, 3, False) == ["game.tests_per_suite=3", "game.white_box=false"]


def test_pairs_that_are_all_too_long_are_told_before_a_model_is_loaded(tmp_path):
    file = tmp_path / "pairs.jsonl"
    long = {"prompt": "Add up xs.", "completion": "x + " * 100}
    file.write_text(json.dumps(long) + "\n" + json.dumps({**long, "prompt": "xs " * 300}) + "\n")
    recipe = load_recipe("tiny", ["method=sft", f"sft.code={file}"])
    said = (
        r"of 2 pairs for code 1 are longer than code\.max_completion_tokens=72, 1 are longer than code\.max_prompt_tok"
    )
    for use in (lambda: recipe_pairs(recipe, ["code"]), lambda: pairs_ahead(recipe, 10, [])):
        with pytest.raises(UserError, match=said) as caught:
            use()
        assert caught.value.hint == "raise what is named"
    file.write_text(json.dumps(long) + "\n" + json.dumps({**long, "completion": "x"}) + "\n")
    assert len(recipe_pairs(recipe, ["code"])) == 2
    assert pairs_ahead(recipe, 10, []) == (2, 2)
    both = load_recipe("tiny", ["method=sft", "sft.role=both", f"sft.code={file}"])
    assert pairs_ahead(both, 10, []) == (2, 128), "one role's file, and pairs that are still to be made"


def test_what_no_test_checks_is_counted_whatever_stands_in_tests(judge):
    bare = [["assert double(2) == 4"], ["assert abs(double(0.5) - 1) < 1"], [""], ["double(2) == 99"], []]
    problems = [DOUBLE.model_copy(update={"id": str(n), "tests": tests}) for n, tests in enumerate(bare)]
    made = make_pairs(problems, PairOptions("code"), judge)
    assert (len(made.rows), made.untested) == (5, 3)
