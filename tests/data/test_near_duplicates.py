"""MinHash bands find what is similar, and questions are compared by what tells them apart."""

import random

import pytest

from codea1_cli.data.similarity import NUM_PERM, Bands, Signer, bands, jaccard, question_set


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.72, 0.85, 0.9, 1.0])
def test_bands_find_a_pair_at_the_threshold(threshold):
    count, rows = bands(threshold)
    assert count * rows <= NUM_PERM
    assert 1 - (1 - threshold**rows) ** count >= 0.98


def test_bands_agree_with_comparing_every_pair():
    chance = random.Random(7)
    words = [f"w{i}" for i in range(400)]
    sets = [set(chance.sample(words, 40)) for _ in range(60)]
    for i in range(0, 60, 3):  # each third row is a changed copy of the one before
        sets[i] = (sets[i - 1] | {f"new{i}"}) - {min(sets[i - 1])} if i else sets[0]
    index = Bands(0.85, Signer())
    for number, elements in enumerate(sets):
        index.add(number, elements)
    found = {(earlier, row) for row, others in index.candidates() for earlier in others}
    similar = {(a, b) for b in range(60) for a in range(b) if jaccard(sets[a], sets[b]) >= 0.85}
    assert len(similar) >= 15
    assert similar <= found
    assert len(found) < len(similar) + 20


def test_rows_without_elements_are_like_no_other():
    index = Bands(0.85, Signer())
    for number in range(3):
        index.add(number, set())
    index.add(3, {"a"})
    index.add(4, {"a"})
    assert list(index.candidates()) == [(4, [3])]


def test_signatures_do_not_depend_on_the_order():
    signer = Signer()
    assert (signer.sign(["a", "b", "c"]).hashvalues == signer.sign(["c", "a", "b"]).hashvalues).all()


ALIKE = [
    ("Write a function to find the maximum of two numbers.", "Write a python function to find maximum of two numbers"),
    ("Sort the list.\n\n>>> f([2, 1])\n[1, 2]", "Sort the list.\n```python\nassert f([3]) == [3]\n```"),
]
APART = [
    ("Convert degrees to radians", "Convert radians to degrees"),
    ("Find the first even number of a list", "Find the last odd number of a list"),
    ("Find numbers divisible by m and n in a list", "Find numbers divisible by m or n in a list"),
]


def test_questions():
    for a, b in ALIKE:
        assert jaccard(question_set(a), question_set(b)) >= 0.85, (a, b)
    for a, b in APART:
        assert jaccard(question_set(a), question_set(b)) < 0.72, (a, b)
    assert jaccard(set(), set()) == 0.0
