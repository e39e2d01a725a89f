"""The recipe's switches, played by the real judge."""

from dataclasses import replace

import pytest

from codea1_cli.engine.run_writer import RunWriter
from codea1_cli.errors import EnvironmentFault
from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest
from codea1_cli.game.pool import PoolMember
from codea1_cli.judging.step_judge import Candidate, JudgedProblem, StepCandidate
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import open_step_judge
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.sandbox.verdicts import Expected, Verdict

DOUBLE = Problem(
    id="double",
    question="Double n.",
    declaration="def double(n):",
    entry_point="double",
    reference="def double(n):\n    return 2 * n\n",
    tests=["assert double(3) == 6", "assert double(0) == 0"],
)
RIGHT = "```python\ndef double(n):\n    return n + n\n```"
WRONG = "```python\ndef double(n):\n    return n ** 2\n```"
BROKEN = "```python\ndef double(n)\n    return\n```"


def suite(*asserts):
    return "```python\n" + "\n".join(asserts) + "\n```"


@pytest.fixture
def judge(tmp_path):
    made = []

    def make(*overrides):
        judge = open_step_judge(
            load_recipe("tiny", ["game.tests_per_suite=2", "judge.workers=1", *overrides]), tmp_path
        )
        made.append(judge)
        return judge

    yield make
    for judge in made:
        judge.close()


def judged(judge, completion, *suites, book=()):
    candidate = judge.load_candidates(DOUBLE, [completion])[0]
    return judge.judge_suites(DOUBLE, candidate, list(suites), list(book)).game


def test_the_canary_tells_right_from_wrong(judge):
    assert set(judge().canary()) == {"missing"}


def test_validation_answers_by_the_reference(judge):
    tests = judged(judge(), WRONG, suite("assert double(3) == 9")).suites[0].tests
    assert (tests[0].valid, tests[0].stated_correctly, tests[0].expected) == (True, False, "6")
    assert tests[0].verdict is Verdict.FAILED


def test_validation_off_believes_the_model(judge):
    tests = (
        judged(judge("game.validation=false"), WRONG, suite("assert double(3) == 9", "assert double(1) == 5"))
        .suites[0]
        .tests
    )
    assert [test.valid for test in tests] == [True, True]
    assert [test.verdict for test in tests] == [Verdict.PASSED, Verdict.FAILED]
    assert tests[0].expected == "9"


def test_the_book_is_replayed(judge):
    game = judged(
        judge(), WRONG, suite("assert double(2) == 4"), book=["assert double(3) == 6", "assert double(0) == 0"]
    )
    assert [test.verdict for test in game.book] == [Verdict.FAILED, Verdict.PASSED]


def test_who_is_attacked(judge):
    completions = [RIGHT, WRONG, BROKEN, WRONG]
    default = judge("game.share_identical=false")
    assert default.attacked(default.load_candidates(DOUBLE, completions)) == [True, True, False, True]
    sharing = judge("game.share_identical=true")
    candidates = sharing.load_candidates(DOUBLE, completions)
    assert sharing.attacked(candidates) == [True, True, False, False]
    assert sharing.owners(candidates) == [0, 1, 2, 1]
    paper = judge("game.mode=paper", "game.share_identical=false")
    assert paper.attacked(paper.load_candidates(DOUBLE, completions)) == [True] * 4


def test_references_that_cannot_be_played_are_named(judge):
    one = judge()
    assert one.reference_fault(DOUBLE) is None
    broken = DOUBLE.model_copy(update={"reference": "def double(n):\n    return ("})
    assert one.reference_fault(broken) == "its reference does not load"
    dice = DOUBLE.model_copy(update={"reference": "import random\ndef double(n):\n    return random.random()\n"})
    assert "differs between runs" in (one.reference_fault(dice) or "")


def test_solutions_and_suites_on_held_out_problems(judge):
    one = judge()
    solved = one.solve_rate(DOUBLE, [RIGHT, WRONG, BROKEN, RIGHT])
    assert solved.passed == (True, False, False, True)
    assert len(solved.wrong) == 1
    wrong = "def double(n):\n    return n ** 2\n"
    killing = one.suite_on_wrong(
        DOUBLE, wrong, suite("assert double(2) == 4", "assert double(3) == 6", "assert double(5) == 10")
    )
    assert (killing.valid, killing.kills) == (2, 1), "only the first K asserts count"
    assert (killing.exposed, killing.misstated, killing.calls) == (True, 0, ("double(2)", "double(3)"))


@pytest.mark.parametrize("validation", [True, False])
def test_a_wrong_answer_that_fails_exposes_nothing_and_is_a_false_alarm(judge, validation):
    """Whatever the game expects, what a suite is worth is measured by the reference."""
    wrong = "def double(n):\n    return n ** 2\n"
    text = suite("assert double(2) == 5", "assert double(3) == 7", "assert double(4) == 8")
    found = judge(f"game.validation={validation}").suite_on_wrong(DOUBLE, wrong, text)
    assert (found.asserts, found.valid, found.correct, found.misstated) == (2, 2, 0, 2)
    assert (found.kills, found.exposed) == (1, False)


@pytest.mark.parametrize("reference", ["def double(n):\n    return (", "def double(n):\n    raise ValueError(n)\n"])
def test_a_reference_that_answers_nothing_says_nothing_about_a_solution(judge, reference):
    solved = judge().solve_rate(DOUBLE.model_copy(update={"reference": reference}), [RIGHT, WRONG])
    assert (solved.passed, solved.wrong, solved.unscored) == ((False, False), (), 2)


def test_a_reference_that_the_sandbox_failed_on_leaves_solutions_unscored(judge, monkeypatch):
    one = judge()
    lost = {call: Expected(call, False, reason="unscored") for call in ("double(3)", "double(0)")}
    monkeypatch.setattr(one.judge, "expected", lambda *_: lost)
    solved = one.solve_rate(DOUBLE, [RIGHT, WRONG])
    assert (solved.passed, solved.wrong, solved.unscored) == ((False, False), (), 2)
    with pytest.raises(EnvironmentFault, match="sandbox failed on the reference of double"):
        one.reference_fault(DOUBLE)


def test_what_is_known_not_to_load_is_not_run_again(judge, monkeypatch):
    one = judge()
    candidate = one.load_candidates(DOUBLE, [BROKEN])[0]
    monkeypatch.setattr(one.judge, "check", lambda *_: pytest.fail("ran"))
    game = one.judge_suites(DOUBLE, candidate, [suite("assert double(3) == 6")], ()).game
    assert game.loaded is False
    assert game.suites[0].tests[0].verdict is None


@pytest.mark.parametrize("share", [True, False])
def test_shared_suites_are_one_group_to_learn_from(judge, tmp_path, share):
    recipe = load_recipe(
        "tiny", ["game.tests_per_suite=2", f"game.share_identical={share}", "game.update_n=2", "game.n_test=2"]
    )
    one = judge(f"game.share_identical={share}")
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.create()
    writer = RunWriter(recipe, run)
    candidates = one.load_candidates(DOUBLE, [WRONG, WRONG, BROKEN])
    texts = [
        suite("assert double(3) == 6", "assert double(4) == 8"),
        suite("assert double(0) == 0", "assert double(2) == 4"),
    ]
    owners = one.owners(candidates)
    group = {
        owner: one.judge_suites(DOUBLE, candidates[owner], texts if candidates[owner].loaded else [], ())
        for owner in set(owners)
    }
    outcomes, stats = writer.score_step(1, {"double": JudgedProblem([group[owner] for owner in owners])})
    outcome = outcomes["double"]
    assert outcome.selected == ([0] if share else [0, 1])
    assert outcome.code_rewards[:2] == [0.5, 0.5]
    assert outcome.code_rewards[2] == 0.0
    assert stats["book_tests"] == 2
    assert writer.replayed("double") == ("assert double(3) == 6", "assert double(4) == 8")
    assert run.rollout_file(1).is_file()
    writer.close()


def test_the_book_switched_off_stays_empty(judge, tmp_path):
    recipe = load_recipe("tiny", ["game.book=false", "game.tests_per_suite=2"])
    one = judge("game.book=false")
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.create()
    writer = RunWriter(recipe, run)
    judged_one = one.judge_suites(DOUBLE, one.load_candidates(DOUBLE, [WRONG])[0], [suite("assert double(3) == 6")], ())
    _, stats = writer.score_step(1, {"double": JudgedProblem([judged_one])})
    assert stats["book_tests"] == 0
    assert writer.replayed("double") == ()
    writer.close()


def test_a_problem_whose_reference_keeps_running_out_of_time_leaves_also_after_a_resume(tmp_path):
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.create()
    recipe = load_recipe("tiny", ["checkpoint.every=1"])

    def step(writer, number, late, calls=10):
        tests = [
            JudgedTest("s", f"double({n})", n >= late, "timeout: time limit" if n < late else None)
            for n in range(calls)
        ]
        game = JudgedCandidate("c", True, suites=(JudgedSuite("", (*tests, *tests)),))
        judged = {"double": JudgedProblem([StepCandidate(Candidate("", "c", True), game)])}
        return writer.score_step(number, judged)[1]

    def told(stats):
        return stats["reference_timeouts"], stats["leaving"], stats["problems_left"]

    writer = RunWriter(recipe, run)
    assert told(step(writer, 1, late=1)) == (1, [], 0)
    assert told(step(writer, 2, late=1, calls=11)) == (1, [], 0)  # less than a tenth
    for role in ("code", "test"):
        (run.path / f"checkpoints/.work/{role}/checkpoint-2").mkdir(parents=True)
    writer.commit(2, 2)
    assert told(step(writer, 3, late=2)) == (2, ["double"], 1)
    assert writer.left == {"double": 3}
    writer.close()
    resumed = RunWriter(recipe, run)  # the step after the checkpoint is played again
    assert resumed.left == {}
    assert told(step(resumed, 3, late=2)) == (2, ["double"], 1)
    assert told(step(resumed, 4, late=0)) == (0, [], 1)
    assert resumed.left == {"double": 3}
    resumed.close()


def test_a_problem_whose_candidates_earn_the_same_again_and_again_leaves(tmp_path):
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.create()
    recipe = load_recipe("tiny", ["checkpoint.every=1", "method=golden-tests", "data.leave_flat=2"])

    def step(writer, number, passed):
        """Two candidates, of whose two tests so many pass; None: unscored."""
        judged = []
        for count in passed:
            verdicts = [Verdict.PASSED if i < (count or 0) else Verdict.FAILED for i in range(2)]
            own = tuple(JudgedTest("s", f"double({i})", True, verdict=verdict) for i, verdict in enumerate(verdicts))
            loaded = None if count is None else True
            judged.append(StepCandidate(Candidate("", "c", True), JudgedCandidate("c", loaded, own=own)))
        stats = writer.score_step(number, {"double": JudgedProblem(judged)})[1]
        return stats["leaving_flat"], stats["problems_left"]

    writer = RunWriter(recipe, run)
    assert step(writer, 1, [2, 2]) == ([], 0)
    assert step(writer, 2, [2, 1]) == ([], 0)
    assert step(writer, 3, [1, 1]) == ([], 0)
    (run.path / "checkpoints/.work/code/checkpoint-3").mkdir(parents=True)
    writer.commit(3, 3)
    assert step(writer, 4, [None, None]) == ([], 0)  # says nothing
    assert step(writer, 5, [2, None]) == (["double"], 1)
    assert writer.left == {"double": 5}
    writer.close()
    resumed = RunWriter(recipe, run)
    assert resumed.left == {}
    assert step(resumed, 4, [1, 1]) == (["double"], 1)
    resumed.close()


SQUARE, ADD_TWO, LOOPS = (
    f"def double(n):\n    {body}\n" for body in ("return n ** 2", "return n + 2", "while n: pass")
)


def played(one, completions, *texts):
    return [
        one.judge_suites(DOUBLE, candidate, list(texts) if candidate.loaded else [], ())
        for candidate in one.load_candidates(DOUBLE, completions)
    ]


def test_this_steps_wrong_programs_and_earlier_ones_are_the_pool(judge):
    one = judge()
    plus = "```python\ndef double(n):\n    return n + 3\n```"
    problem = played(one, [WRONG, RIGHT, plus, WRONG], suite("assert double(2) == 4", "assert double(5) == 11"))
    before = (PoolMember(ADD_TWO, "assert double(3) == 6", True, 1),)
    pool = one.judge_pool(DOUBLE, problem, before, 2).pool
    assert [(member.code, member.step, member.own) for member in pool.members] == [
        (problem[0].candidate.code, 2, True),
        (problem[2].candidate.code, 2, True),
        (ADD_TWO, 1, True),
    ]
    assert pool.members[0].evidence == "assert double(3) == 6"
    # double(5) == 11 is stated wrongly and breaks nobody; double(2) tells 5 from 4, and neither 2 ** 2 nor 2 + 2.
    assert pool.breaks(one.rules, problem[0].game.suites[0]) == {1}
    assert pool.after(before) == pool.members


def test_alike_programs_and_those_that_run_out_of_time_are_no_members(judge, monkeypatch):
    one = judge("judge.time_limit_s=1")
    alike = "```python\ndef double(n):\n    return n * n\n```"
    loops = f"```python\n{LOOPS}```"
    problem = played(one, [WRONG, alike, loops], suite("assert double(4) == 8"))
    before = (
        PoolMember(LOOPS, "assert double(3) == 6", True, 1),
        PoolMember(SQUARE, "assert double(4) == 8", False, 1),
    )
    asked, check = [], one.judge.check
    monkeypatch.setattr(
        one.judge, "check", lambda code, *rest, **more: asked.append(code) or check(code, *rest, **more)
    )
    pool = one.judge_pool(DOUBLE, problem, before, 2).pool
    assert [member.code for member in pool.members] == [problem[0].candidate.code]
    assert pool.after(before) == pool.members
    assert problem[2].candidate.code not in asked, "what is known to run out of time is not run again"


def test_a_member_on_which_the_sandbox_fails_stays_and_counts_for_nothing(judge, monkeypatch):
    one = judge()
    problem = played(one, [RIGHT], suite("assert double(5) == 10"))
    before = (PoolMember(ADD_TWO, "assert double(3) == 6", True, 1),)
    check = one.judge.check

    def failing(code, entry, calls, expected, **rest):
        found = check(code, entry, calls, expected, **rest)
        lost = {call: replace(test, verdict=Verdict.UNSCORED) for call, test in found.verdicts.items()}
        return replace(found, verdicts=lost if code == ADD_TWO else found.verdicts)

    monkeypatch.setattr(one.judge, "check", failing)
    pool = one.judge_pool(DOUBLE, problem, before, 2).pool
    assert pool.members == ()
    assert pool.after(before) == before


def test_a_wrong_candidate_that_waits_for_the_pool_is_judged_as_one_that_does_not(judge, monkeypatch):
    one = judge()
    plus = "```python\ndef double(n):\n    return n + 3 if n != 9 else 1 // 0\n```"
    texts = [suite("assert double(2) == 4", "assert double(5) == 11"), suite("assert double(9) == 18", "double(1)")]
    book, before = ("assert double(7) == 14",), (PoolMember(ADD_TWO, "assert double(3) == 6", True, 1),)
    candidates = one.load_candidates(DOUBLE, [WRONG, RIGHT, plus, BROKEN, WRONG])
    assert [candidate.is_wrong for candidate in candidates] == [True, False, True, False, True]

    def judged(later):
        found = [one.judge_suites(DOUBLE, c, texts if c.loaded else [], book, later) for c in candidates]
        assert [game.later for game in found] == [later and candidate.is_wrong for candidate in candidates]
        return one.judge_pool(DOUBLE, found, before, 2)

    at_once, asked, check = judged(False), [], one.judge.check
    monkeypatch.setattr(
        one.judge, "check", lambda code, *rest, **more: asked.append(code) or check(code, *rest, **more)
    )
    assert judged(True) == at_once
    assert at_once.pool.members
    assert len(asked) == 4, "each wrong program runs once, the right one and the earlier member too"
    assert not one.judge_suites(DOUBLE, candidates[0], texts, (), False).later


def test_a_wrong_candidate_that_may_be_out_of_time_does_not_wait_for_the_pool(judge, monkeypatch):
    one = judge()
    loop = "```python\ndef double(n):\n    while n == 9:\n        pass\n    return n + 3\n```"
    texts = [suite("assert double(2) == 4", "assert double(9) == 18")]
    candidates = one.load_candidates(DOUBLE, [loop, WRONG])
    assert all(candidate.is_wrong for candidate in candidates)
    found = [one.judge_suites(DOUBLE, candidate, texts, (), True) for candidate in candidates]
    assert [game.later for game in found] == [False, True]
    asked, check = [], one.judge.check
    monkeypatch.setattr(
        one.judge, "check", lambda code, *rest, **more: asked.append(code) or check(code, *rest, **more)
    )
    pool = one.judge_pool(DOUBLE, found, (), 2).pool
    assert asked == [candidates[1].code], "what was out of time has no place in the pool, and is not run for it"
    assert [member.code for member in pool.members] == [candidates[1].code]


@pytest.mark.parametrize(("seconds", "late"), [(0.0, False), (0.05, False), (0.06, True)])
def test_where_the_reference_is_slow_every_program_may_be_out_of_time(judge, seconds, late):
    expected = {"f(1)": Expected("f(1)", True, 1, "1", seconds=seconds), "f(2)": Expected("f(2)", False, seconds=0.25)}
    assert judge().judge.may_be_late("def f(n):\n    return n", expected) is late


def test_a_sandbox_that_fails_on_a_candidate_that_waited_leaves_it_unscored(judge, monkeypatch):
    one = judge()
    candidate = one.load_candidates(DOUBLE, [WRONG])[0]
    waiting = one.judge_suites(DOUBLE, candidate, [suite("assert double(5) == 10")], (), True)
    monkeypatch.setattr(one.sandbox, "run", lambda code, entry, calls, *_: ProgramRun.unscored(len(calls), "lost"))
    found = one.judge_pool(DOUBLE, [waiting], (), 2)
    assert found.candidates[0].game.suites[0].unscored
    assert found.pool.members == ()
