"""A run in trackers: what is logged, what a resume does to it, and trackers that fail."""

import shlex
import threading
from pathlib import Path

import pytest

from codea1_cli.engine.resume import ResumePoint, set_aside
from codea1_cli.runs import tracking
from codea1_cli.runs.tracking import log_run, places, tracked
from codea1_cli.trackers import make_tracker
from tests.cli.fake_run import make_run
from tests.e2e.harness import wait_for
from tests.runs.stand_ins import Notes

HERE = "tests.runs.stand_ins"
LONG_S = 600.0


@pytest.fixture
def run(tmp_path):
    made = make_run(tmp_path)
    made.note(problem_ids=[], devices={}, data={})
    return made


def told(run, monkeypatch, tracker=None) -> list:
    """What a tracker is told of a run that has ended."""
    ended, failed, tracker = threading.Event(), threading.Event(), tracker or Notes()
    ended.set()
    monkeypatch.setattr(tracking, "make_tracker", lambda name: tracker)
    log_run(run, "notes", LONG_S, ended, failed)
    return tracker.told if isinstance(tracker, Notes) else []


def test_names_are_those_of_the_metrics_and_a_second_look_logs_what_is_new(run, monkeypatch):
    assert told(run, monkeypatch) == [
        ("open", "first", None, None),
        (1, {"code/reward": 0.25}),
        (1, ["basic/double it:1"]),
        (2, {"code/reward": 0.5}),
        (3, {"code/reward": 0.75}),
        (3, ["basic/double it:1"]),
        (3, {"eval/heldout/code/pass@1": 0.5}),
        ("close", False),
    ]
    line = {"step": 4, "time": 2.0, "code": {"reward": 1.0}, "arena": {"name": "x", "sandbox_failures": {"lost": 2}}}
    run.append_metrics(line)
    with open(run.metrics_file, "a") as file:
        file.write('{"step": 5, "ti')  # a crash
    figures = {"code/reward": 1.0, "arena/sandbox_failures/lost": 2}
    assert told(run, monkeypatch) == [("open", "first", "there", None), (4, figures), ("close", False)]
    assert places(run) == {"notes": "nowhere"}


def test_a_resume_goes_back_in_the_same_run_and_a_start_over_begins_another(run, monkeypatch):
    told(run, monkeypatch)
    set_aside(run, ResumePoint(1, {}))
    for step in (2, 3):
        run.append_metrics({"step": step, "time": 9.0, "code": {"reward": 0.1}})
    again = told(run, monkeypatch)
    assert again[0] == ("open", "first", "there", 2)
    assert [step for step, _ in again[1:-1]] == [2, 3], "and no rollouts: they are set aside"
    assert told(run, monkeypatch)[1:] == [("close", False)]
    _, moved = set_aside(run, ResumePoint(0, {}))
    assert "what trackers have of it" in moved
    assert told(run, monkeypatch)[0] == ("open", "first", None, None)


def test_tensorboard_drops_the_steps_that_a_resume_went_back_behind(run, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(run, monkeypatch, make_tracker("tensorboard"))
    set_aside(run, ResumePoint(1, {}))
    run.append_metrics({"step": 2, "time": 9.0, "code": {"reward": 8.0}})
    told(run, monkeypatch, make_tracker("tensorboard"))
    found = EventAccumulator(str(run.path / "trackers" / "tensorboard")).Reload()
    assert [(one.step, one.value) for one in found.Scalars("code/reward")] == [(1, 0.25), (2, 8.0)]
    texts = {name: found.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in found.Tags()["tensors"]}
    assert "    return x + 2" in texts["rollouts"]
    assert '"model": "builtin:tiny"' in texts["config"]


class Seen:
    """A view that keeps what it is told."""

    def __init__(self):
        self.events = []

    def phase(self, text):
        raise AssertionError(text)

    def event(self, event):
        self.events.append(event)


def test_what_raises_or_hangs_is_given_up(run, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("EXAMPLE_API_KEY", "s3cret-k3y")
    one, two = Seen(), Seen()
    with (
        tracked(run, [f"{HERE}:Raises"], one, LONG_S, LONG_S),
        tracked(run, [f"{HERE}:Sleeps"], two, 0.1, LONG_S) as asleep,
    ):
        assert wait_for(lambda: asleep[0].why is not None), "while the run goes on"
    (*_, raised), (*_, slept) = one.events, two.events
    assert raised == {
        "kind": "warning",
        "text": f"tracker {HERE}:Raises is given up: ConnectionError: nobody at https://example.com answers to the key "
        f"***; `codea1 runs track first --runs {shlex.quote(str(run.path.parent))} --tracker {HERE}:Raises` "
        "logs what is missing",
    }
    assert f"tracker {HERE}:Sleeps is given up: no answer within 0.1 s;" in slept["text"]
    everything = b"".join(path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    assert b"s3cret" not in everything
    assert b"hunter22" not in everything
    assert {event["kind"] for event in one.events} == {"note", "warning"}
    assert places(run)["Raises"] == "nowhere"
