"""The held-out sets: what ranks see of them, and that what the sandbox could not judge is left out of a figure."""

from types import SimpleNamespace

import pytest

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.heldout import HeldoutAttacking, HeldoutNearMisses, HeldoutSolving, attack_figures, solve_figures
from codea1_cli.game.judged_tests import SolveResult, SuiteResult
from codea1_cli.judging.judge import CandidateResult, TestVerdict
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Expected, Verdict

PROBLEMS = [
    Problem(id=name, question="q", declaration="", entry_point="f", reference="the secret", tests=["assert f() == 1"])
    for name in ("a", "b")
]


class Judge:
    """Solves what says so; finds every suite valid, and deadly where it shouts."""

    workers = 2

    def solve_rate(self, problem, texts):
        assert problem.reference == "the secret"
        return SolveResult(problem.id, tuple(text == "right" for text in texts), ("wrong",), 0)

    def suite_on_wrong(self, problem, source, text):
        kills = int(text == f"kill {source}")
        return SuiteResult(problem.id, 2, 2, 2, 0, kills, kills > 0, ("f(1)", "f(2)"), validity=1.0, unscored=False)


def test_solutions_are_judged_by_the_whole_problem_and_sampled_without_its_reference():
    done = []
    solving = HeldoutSolving(2, PROBLEMS, Judge(), lambda: done.append(1))
    assert [(item.id, item.reference, item.tests) for item in solving.load()] == [
        ("a", "# kept by the arena", []),
        ("b", "# kept by the arena", []),
    ]
    figures, rows = solving.score({"b": ["right", "no"], "a": ["right", "right"]})
    assert (figures["pass@1"], figures["pass@2"], len(done)) == (0.75, 1.0, 2)
    assert [(row["problem_id"], row["wrong"]) for row in rows] == [("b", ("wrong",)), ("a", ("wrong",))]


def test_each_wrong_program_of_a_problem_gets_a_suite_of_its_own():
    attacking = HeldoutAttacking(2, True, PROBLEMS, Judge())
    attacking.targets = [("a", "one"), ("a", "two"), ("b", "three")]
    items = attacking.load()
    assert [(item.id, item.problem.id, item.source) for item in items] == [
        ("0", "a", "one"),
        ("1", "a", "two"),
        ("2", "b", "three"),
    ]
    chats = []

    def apply(chat, tokenize=True, **_):
        if not tokenize:
            return "".join(message["content"] for message in chat)
        chats.append(chat[-1]["content"])
        return []

    tokenizer = SimpleNamespace(chat_template="takes every role", apply_chat_template=apply)
    attacking.prompts(tokenizer, items)
    assert ["two" in chat for chat in chats] == [False, True, False]
    assert not any("the secret" in chat for chat in chats)
    figures, rows = attacking.score({"0": ["kill one"], "2": ["kill one"], "1": ["kill two"]})
    assert figures["kill_rate"] == 2 / 3
    assert [row["problem_id"] for row in rows] == ["a", "b", "a"]


def row(*passed, unscored=0):
    return {"passed": passed, "unscored": unscored}


def test_unscored_solutions_are_counted_and_left_out():
    figures = solve_figures([row(True, False, False, False, unscored=2), row(True, True, True, True)])
    assert figures["pass@1"] == pytest.approx((1 / 2 + 1) / 2)
    assert figures["pass@4"] == 1.0, "two scored solutions say nothing about four"
    assert figures["unscored"] == 2


@pytest.mark.parametrize("rows", [[], [row(False, False, unscored=2)]])
def test_a_figure_over_nothing_is_none(rows):
    assert solve_figures(rows)["pass@1"] is None


def suite(problem="a", *, exposed=False, misstated=0, calls=("f(1)", "f(2)"), unscored=False):
    valid = len(calls)
    kills = int(exposed)
    correct = valid - misstated
    return vars(SuiteResult(problem, 3, valid, correct, misstated, kills, exposed, tuple(calls), 0.5, unscored))


def test_figures_of_suites():
    rows = [
        suite(exposed=True, misstated=1),
        suite(calls=("f(2)", "f(3)")),
        suite("b", calls=()),
        suite("b", exposed=True, misstated=2, unscored=True),
    ]
    figures = attack_figures(rows, 4)
    assert (figures["suites"], figures["unscored"]) == (3, 1)
    assert figures["exposed"] == figures["false_alarm"] == pytest.approx(1 / 3)
    assert figures["soundly_exposed"] == 0, "the suite that exposes states a wrong answer too"
    assert attack_figures([suite(exposed=True), *rows], 4)["soundly_exposed"] == 1 / 4
    assert figures["stated_correctly"] == 3 / 4
    assert figures["asserts"] == 3
    assert figures["distinct_calls"] == (3 + 0) / 2, "f(2) is one call of both suites"
    assert (figures["valid_asserts"], figures["kills_per_valid"]) == (4 / 12, 1 / 4)
    nothing = attack_figures([], 4)
    assert {value for key, value in nothing.items() if key not in ("suites", "unscored")} == {None}


def program(expression):
    return f"def f(n):\n    return {expression}"


COUNTING = Problem(
    id="c",
    question="q",
    declaration="def f(n):",
    entry_point="f",
    reference=program("n + 1"),
    tests=["assert f(0) == 1", "assert f(1) == 2"],
    extra_tests=["assert f(2) == 3", "assert f(3) == 4"],
    meta={
        "wrong": [
            program("n + 1 if n < 2 else 0"),  # half
            program("n + 1 if n < 3 else 0"),
            program("n + 1 if n < 3 else -1"),  # fails where the one before fails
            program("n + 1 if n > 0 else 1 / n"),
            program("n + 1 if n > 2 else 0"),  # less than half
            program("1 + n"),  # right
            program("n + 1 if n != 1 else sleep()"),
            "def f(n:",
        ]
    },
)


class Direct:
    """A judge without a sandbox, for the programs of this file."""

    workers = 2

    def __init__(self):
        self.judge, self.programs, self.lost = self, [], False

    def ask(self, function, problem, *arguments):
        return function(self, problem, *arguments)

    def outage(self, what):
        return EnvironmentFault(what)

    def expected(self, reference, entry_point, calls, own=()):
        found = self.run(reference, calls)
        return {call: Expected(call, True, found[call], str(found[call])) for call in calls}

    def check(self, candidate, entry_point, calls, expected, stop_late=False):
        self.programs.append(candidate)
        if self.lost:
            return CandidateResult(None)
        try:
            found = self.run(candidate, calls)
        except SyntaxError:
            return CandidateResult(False, verdicts={call: TestVerdict(Verdict.LOAD_ERROR) for call in calls})
        return CandidateResult(
            True,
            verdicts={
                call: TestVerdict(
                    Verdict.TIMEOUT
                    if found[call] == "slept"
                    else Verdict.PASSED
                    if found[call] == expected[call].value
                    else Verdict.FAILED
                )
                for call in calls
            },
        )

    def run(self, source, calls):
        space = {"sleep": lambda: "slept"}
        exec(source, space)
        found = {}
        for call in calls:
            try:
                found[call] = eval(call, space)
            except ZeroDivisionError:
                found[call] = "raised"
        return found

    def reference_fault(self, problem):
        return None


def chosen(file, judge, limit, *problems):
    near = HeldoutNearMisses(2, True, problems, judge)
    near.choose(file, limit)
    return [source for _, source in near.targets]


def test_near_misses_pass_most_tests_and_differ(tmp_path):
    wrong = COUNTING.meta["wrong"]
    assert chosen(tmp_path / "a.json", Direct(), 9, COUNTING)[:3] == [wrong[1], wrong[3], wrong[0]]
    assert chosen(tmp_path / "b.json", Direct(), 2, COUNTING) == [wrong[1], wrong[3]]


def test_where_a_problem_has_no_wrong_programs_mutants_of_its_reference_are_tried(tmp_path):
    reference = program("n + 1 if n < 3 else 4")
    bare = COUNTING.model_copy(update={"meta": {}, "reference": reference})
    found = chosen(tmp_path / "a.json", Direct(), 4, bare)
    assert found
    assert found == chosen(tmp_path / "b.json", Direct(), 4, bare)
    for source in found:
        right = sum(got == n + 1 for n, got in enumerate(Direct().run(source, [f"f({n})" for n in range(4)]).values()))
        assert 2 <= right < 4


def test_near_misses_are_chosen_once(tmp_path):
    file, judge = tmp_path / "near_miss.json", Direct()
    first = chosen(file, judge, 2, COUNTING)
    tried = len(judge.programs)
    assert chosen(file, judge, 2, COUNTING) == first
    assert len(judge.programs) == tried
    other = COUNTING.model_copy(update={"id": "d"})
    assert chosen(file, judge, 1, COUNTING, other) == [*first, first[0]]
    assert chosen(file, judge, 1, other) == first[:1]


def test_a_problem_without_a_plain_call_has_no_near_misses(tmp_path):
    judge = Direct()
    judge.lost = True
    indirect = COUNTING.model_copy(update={"tests": ["assert list(count(3)) == [1, 2, 3]"], "extra_tests": []})
    assert chosen(tmp_path / "near_miss.json", judge, 2, indirect) == []
    assert not judge.programs


def test_a_lost_sandbox_and_a_broken_file_are_told(tmp_path):
    judge = Direct()
    judge.lost = True
    with pytest.raises(EnvironmentFault, match="the sandbox failed on c"):
        chosen(tmp_path / "near_miss.json", judge, 2, COUNTING)
    assert not (tmp_path / "near_miss.json").exists()
    for broken in ('{"c": ', "[]", "null", '{"c": "def f(): pass"}', '{"c": [1]}', '{"c": null}'):
        (tmp_path / "near_miss.json").write_text(broken)
        with pytest.raises(UserError, match=r"near_miss\.json is broken"):
            chosen(tmp_path / "near_miss.json", Direct(), 2, COUNTING)
