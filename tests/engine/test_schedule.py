import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.engine.run_setup import Schedule, make_schedule
from codea1_cli.errors import UserError

IDS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=40, unique=True)


@given(ids=IDS, size=st.integers(1, 40), epochs=st.integers(1, 3), seed=st.integers(0, 5))
def test_a_step_never_repeats_a_problem_and_an_epoch_never_shows_one_twice(ids, size, epochs, seed):
    size = min(size, len(ids))
    schedule = make_schedule(ids, problems_per_step=size, epochs=epochs, seed=seed)
    assert len(schedule) == epochs * (len(ids) // size)
    for start in range(0, len(schedule), schedule.steps_per_epoch):
        shown = [pid for step in schedule.steps[start : start + schedule.steps_per_epoch] for pid in step]
        assert len(shown) == len(set(shown))
        assert set(shown) <= set(ids)


@given(ids=IDS, steps=st.integers(1, 30), more=st.integers(0, 30))
def test_a_longer_run_begins_as_the_shorter_one(ids, steps, more):
    short, long = (
        make_schedule(ids, problems_per_step=1, epochs=1, seed=3, max_steps=n) for n in (steps, steps + more)
    )
    assert long.steps[:steps] == short.steps
    assert len(long) == steps + more


def test_epochs_and_seeds_shuffle_differently():
    ids = [str(i) for i in range(50)]
    schedule = make_schedule(ids, problems_per_step=50, epochs=2, seed=0)
    other = make_schedule(ids, problems_per_step=50, epochs=2, seed=1)
    assert len({schedule.steps[0], schedule.steps[1], other.steps[0], tuple(ids)}) == 4


def test_too_few_problems_for_a_step_name_the_remedy():
    with pytest.raises(UserError) as caught:
        make_schedule(["a", "b"], problems_per_step=3, epochs=1, seed=0)
    assert "2 usable problems do not fill a step of 3" in caught.value.what
    assert "train.problems_per_step=2" in (caught.value.hint or "")


def test_the_problem_that_comes_last_takes_the_place_of_one_that_has_left():
    schedule = Schedule((("a", "b"), ("c", "d"), ("a", "e"), ("b", "c")), 2)
    assert schedule.played(1, ()) == ["a", "b"]
    assert schedule.played(2, {"a"}) == ["c", "d"]
    assert schedule.substitutes(3, {"a", "d"}) == {"a": "c"}  # b comes before it
    assert schedule.played(3, {"a", "d"}) == ["c", "e"]
    assert schedule.played(4, {"a", "d"}) == ["b", "c"]


@given(ids=IDS, size=st.integers(1, 10), seed=st.integers(0, 5), data=st.data())
def test_a_step_keeps_its_size_and_its_problems_differ_whoever_has_left(ids, size, seed, data):
    schedule = make_schedule(ids, problems_per_step=min(size, len(ids)), epochs=2, seed=seed)
    gone = data.draw(st.sets(st.sampled_from(ids)))
    for step, due in enumerate(schedule.steps, 1):
        played = schedule.played(step, gone)
        assert len(set(played)) == len(due)
        there_are = {pid for ids in schedule.steps for pid in ids if pid not in gone}
        assert not gone & set(played) or there_are <= set(played)
