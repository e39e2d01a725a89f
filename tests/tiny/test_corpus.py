"""The pre-training corpus: nothing of the other splits, both roles, the game's own prompts, suites of the right size."""

import ast
import random

import pytest

from codea1_cli.problems.prompts import code_messages, test_messages
from world.corpus import AIMED_COMMENT, BLAND_COMMENT, TESTS_PER_SUITE, Manners, Mixture, documents, suite
from world.family import fill
from world.problems import draw, problems, share
from world.variants import answer, families, variant

pytestmark = pytest.mark.xdist_group("corpus")  # one process: the documents take a while

COUNT = 2000


@pytest.fixture(scope="module")
def corpus():
    return list(documents(COUNT, seed=3))


def test_no_text_of_the_dev_and_heldout_problems_is_in_the_corpus(corpus):
    users = "\n".join(document.messages[-1]["content"] for document in corpus)
    for split in ("dev", "heldout"):
        for row in problems(split):
            assert row.question not in users


def test_the_corpus_draws_on_the_training_share_alone(corpus):
    for document in corpus[:500]:
        user = document.messages[-1]["content"]
        found = [share(document.family, split) for split in ("dev", "heldout")]
        for part in found:
            for wording in part.wordings:
                for values in part.values:
                    assert variant(document.family, values).family.name == document.family
                    assert f"\n\n{fill(wording, dict(values))}\n\n" not in user


def test_the_same_seed_gives_the_same_documents(corpus):
    assert list(documents(50, seed=3)) == corpus[:50]
    assert list(documents(50, seed=4)) != corpus[:50]


def test_prompts_are_those_of_the_game(corpus):
    row = problems("train")[0]
    code, test = code_messages(row), test_messages(row, row.reference, TESTS_PER_SUITE)
    systems = {document.messages[0]["content"] for document in corpus}
    assert systems == {code[0]["content"], test[0]["content"]}
    openings = {document.messages[-1]["content"].split("\n")[0] for document in corpus}
    assert {code[-1]["content"].split("\n")[0], test[-1]["content"].split("\n")[0]} <= openings


def test_every_family_has_both_roles(corpus):
    for role in ("Write this function.", "Write tests that break"):
        assert {d.family for d in corpus if d.messages[-1]["content"].startswith(role)} == set(families())


def test_replies_are_one_fenced_block(corpus):
    for document in corpus:
        lines = document.reply.split("\n")
        assert (lines[0], lines[-1]) == ("```python", "```")
        assert "```" not in "\n".join(lines[1:-1])


def test_suites_have_a_comment_and_exactly_k_asserts(corpus):
    for document in corpus:
        if document.messages[-1]["content"].startswith("Write tests"):
            comment, *asserts = document.reply.split("\n")[1:-1]
            assert comment in (AIMED_COMMENT, BLAND_COMMENT)
            assert len(asserts) == TESTS_PER_SUITE
            assert all(line.startswith("assert solve(") for line in asserts)


def kills(lines: list[str], found, candidate: str) -> int:
    calls = [ast.parse(line).body[0].test.left.args for line in lines]
    arguments = [tuple(ast.literal_eval(value) for value in call) for call in calls]
    return sum(answer(candidate, call) != found.expected(call) for call in arguments)


def test_aimed_suites_kill_and_bland_ones_mostly_do_not():
    rng = random.Random(5)
    share_killed = {}
    for aimed in (0.0, 1.0):
        killed = total = 0
        for name in rng.sample(list(families()), 40):
            found = draw(name, "train", rng).variant
            candidate = rng.choice(found.wrong)
            lines = suite(found, candidate, Manners(aimed=aimed, sloppy=0.0), rng).split("\n")[1:]
            killed, total = killed + kills(lines, found, candidate), total + len(lines)
        share_killed[aimed] = killed / total
    assert share_killed[0.0] < 0.35 < 0.6 < share_killed[1.0]


def test_a_careful_suite_is_valid_and_a_sloppy_one_is_not():
    rng = random.Random(6)
    for name in rng.sample(list(families()), 40):
        found = draw(name, "train", rng).variant
        careful = suite(found, found.right[0], Manners(sloppy=0.0), rng).split("\n")[1:]
        assert len(set(careful)) == TESTS_PER_SUITE
        for line in careful:
            check = ast.parse(line).body[0].test
            call = tuple(ast.literal_eval(value) for value in check.left.args)
            assert found.expected(call) == ast.unparse(check.comparators[0]).replace('"', "'")
        sloppy = suite(found, found.right[0], Manners(sloppy=1.0, slip=1.0), rng).split("\n")[1:]
        assert all(_is_wrong(line, found) or sloppy.count(line) > 1 for line in sloppy)


def _is_wrong(line: str, found) -> bool:
    try:
        check = ast.parse(line).body[0].test
    except SyntaxError:
        return True
    call = tuple(ast.literal_eval(value) for value in check.left.args)
    return found.expected(call) != repr(ast.literal_eval(check.comparators[0]))


def test_shares_of_the_mixture_are_kept():
    corpus = list(documents(2000, seed=1, mixture=Mixture(code=1.0, right=1.0)))
    right = {
        source
        for name in families()
        for values in share(name, "train").values
        for source in variant(name, values).right
    }
    assert all(document.reply.removeprefix("```python\n").removesuffix("\n```") in right for document in corpus)
