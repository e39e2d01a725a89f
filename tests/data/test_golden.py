"""Problems whose tests a Test LLM wrote: what is kept of its suites, and what is said of them."""

from types import SimpleNamespace

from codea1_cli.data.golden import UNSCORED, GoldenOptions, golden_card, golden_tests, with_tests
from codea1_cli.judging.judge import own_answers, own_calls
from codea1_cli.problems.problem import Problem, argument_types
from tests.judging.conftest import judge, sandbox

__all__ = ["judge", "sandbox"]

DOUBLE = Problem(
    id="double",
    question="Double n.",
    declaration="def double(n):",
    entry_point="double",
    reference="def double(n):\n    return n + n",
    tests=["assert double(5) == 10", "assert double('b') == 'bb'"],
    meta={"wrong": ["def double(n):\n    return n * n", "def double(n):\n    return n"]},
)
SUITES = [
    "assert double(2) == 4\nassert double(3) == 7\nassert double(3) == 6\nassert double('a') == 'aa'",
    "assert double(3) == 6\nassert double(2) == 4\nassert double(10) == 100",
    "assert double(3) == 7\nassert double(3) < 1\nassert double(2) == 4",
]


def test_the_most_stated_value_of_a_call_becomes_its_test(judge):
    found = golden_tests(DOUBLE, SUITES, GoldenOptions(tests=3), judge)
    assert found.tests == ("assert double(2) == 4", "assert double(3) == 7", "assert double('a') == 'aa'")
    assert (found.asserts, found.distinct, found.calls, found.contradicted) == (8, 5, 4, 1)
    assert (found.right, found.right_kept) == (2, 2)


def test_a_call_of_other_arguments_than_the_problems_tests_pass_is_none(judge):
    suites = ["assert double(None) == 4\nassert double() == 4\nassert double(3, 3) == 6\nassert double(2) == 4"]
    found = golden_tests(DOUBLE, suites, GoldenOptions(), judge)
    assert (found.tests, found.unfit, found.asserts) == (("assert double(2) == 4",), 3, 1)
    bare = DOUBLE.model_copy(update={"tests": []})
    assert len(golden_tests(bare, suites, GoldenOptions(), judge).tests) == 4


def test_validated_tests_state_the_references_answers_and_expose(judge):
    found = golden_tests(DOUBLE, SUITES, GoldenOptions(validate=True, min_exposed=1), judge)
    assert found.tests == ("assert double(2) == 4", "assert double('a') == 'aa'")
    assert 1 <= found.exposed <= found.tried
    one = golden_tests(DOUBLE, SUITES, GoldenOptions(tests=1), judge)
    assert one.exposed < found.exposed, "n * n gives 4 too, and fails for 'a'"
    much = golden_tests(DOUBLE, SUITES, GoldenOptions(min_exposed=1000), judge)
    assert (much.tests, much.why) == ((), "its tests expose fewer than 1000 wrong programs")
    wrong = golden_tests(DOUBLE, ["assert double(2) == 5"], GoldenOptions(validate=True), judge)
    assert wrong.why == "no test of it states the reference's answer"


def test_without_a_reference_the_suites_alone_decide(judge):
    bare = DOUBLE.model_copy(update={"reference": ""})
    found = golden_tests(bare, SUITES, GoldenOptions(tests=1), judge)
    assert (found.tests, found.right, found.exposed) == (("assert double(2) == 4",), None, None)
    for options, why in (
        (GoldenOptions(validate=True), "it has no reference to validate by"),
        (GoldenOptions(min_exposed=1), "it has no reference to tell what its tests expose"),
    ):
        assert golden_tests(bare, SUITES, options, judge).why == why
    assert golden_tests(bare, ["no"], GoldenOptions(), judge).why == "the model wrote no test of it"


def test_a_sandbox_that_fails_leaves_a_problem_out(judge, monkeypatch):
    lost = SimpleNamespace(reason="unscored", valid=False)
    monkeypatch.setattr(judge, "expected", lambda _reference, _entry, calls, _own: dict.fromkeys(calls, lost))
    found = golden_tests(DOUBLE, SUITES, GoldenOptions(), judge)
    assert (found.tests, found.why) == ((), UNSCORED)


def test_what_is_trained_on_is_what_the_tests_state(judge):
    made = with_tests(DOUBLE, golden_tests(DOUBLE, SUITES[2:], GoldenOptions(), judge), "mine")
    assert (made.reference, own_calls(made)) == ("", ["double(3)", "double(2)"])
    assert [one.value for one in own_answers(judge, made).values()] == [7, 4], "no reference corrects them"
    assert argument_types(made) == argument_types(DOUBLE)
    assert made.meta["tests_by"] == "mine"


def test_a_card_says_what_is_known(judge):
    bare = DOUBLE.model_copy(update={"reference": ""})
    options = GoldenOptions(tests=3)
    made = [golden_tests(one, suites, options, judge) for one, suites in ((DOUBLE, SUITES), (bare, SUITES), (bare, []))]
    card = golden_card(made, options, {"model": "mine"})
    assert (card["problems"], card["with_tests"], card["tests"], card["with_reference"]) == (3, 2, 6, 1)
    assert (card["asserts"], card["duplicates"], card["contradicted"]) == (16, 6, 2)
    assert (card["stated_rightly"], card["stated_rightly_kept"]) == (2 / 4, 2 / 3)
    assert card["without"] == {"the model wrote no test of it": 1}
    assert golden_card(made[1:], options, {})["stated_rightly"] is None
