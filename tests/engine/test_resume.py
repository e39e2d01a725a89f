"""What a resumed run goes on from, what it sets aside, and which damage it names."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from codea1_cli.engine.resume import ResumePoint, resume_point, set_aside
from codea1_cli.errors import UserError
from codea1_cli.mistakes import MistakeStore
from codea1_cli.recipe.files import load_recipe, recipe_text, resumed_recipe
from codea1_cli.runs.checkpoints import damage
from codea1_cli.runs.run_dir import COMMITTED, RunDir

RECIPE = load_recipe("tiny", ["checkpoint.every=1"])
ROLES = ("code", "test")


def save(run: RunDir, step: int, text: str = "x") -> None:
    """A checkpoint as the two sides and the arena leave it."""
    for role in ROLES:
        folder = run.pending / role
        folder.mkdir(parents=True)
        save_file({"w": torch.zeros(8), "v": torch.ones(3)}, folder / "model.safetensors")
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
            torch.save({"step": step}, folder / name)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (run.pending / "arena").mkdir()
    book = {"p": [["assert f(1) == 2", step]]}
    (run.pending / "arena" / "state.json").write_text(json.dumps({"step": step, "book": book}))
    run.commit(step)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three steps, each saved: a line of metrics, rollouts, an evaluation and an event of the book a step."""
    run = RunDir(tmp_path_factory.mktemp("runs") / "r")
    run.create()
    (run.path / "evaluation").mkdir()
    run.recipe_file.write_text(recipe_text(RECIPE))
    (run.path / "run.json").write_text(json.dumps({"problem_ids": [], "devices": {}, "data": {}}))
    run.append_metrics({"step": 0, "eval": {}})
    with MistakeStore(run.mistakes_file) as store:
        for step in (1, 2, 3):
            store.append(step, [("p", "assert f(1) == 2", 1, f"candidate {step}")])
            run.append_metrics({"step": step, "arena": {}})
            run.rollout_file(step).write_text("r")
            (run.path / "evaluation" / f"step-{step:06d}-code.json").write_text("[]")
            save(run, step)
    return run


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "r", symlinks=True)
    return RunDir(tmp_path / "r")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_run_goes_on_from_its_end_and_nothing_is_cut(run):
    before = sorted(str(path) for path in run.path.rglob("*"))
    point = resume_point(run)
    assert point == ResumePoint(3, {})
    assert set_aside(run, point) is None
    assert sorted(str(path) for path in run.path.rglob("*")) == before


def remove(name):
    return lambda folder: (folder / name).unlink()


def remove_folder(name):
    return lambda folder: shutil.rmtree(folder / name)


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def zero(name):
    return lambda folder: (folder / name).write_bytes(bytes((folder / name).stat().st_size))


def cut(name):
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - 1)


DAMAGES = {
    "no COMMITTED": (remove(COMMITTED), "COMMITTED is missing"),
    "an empty COMMITTED": (write(COMMITTED, b""), "COMMITTED is broken"),
    "a COMMITTED that is a list": (write(COMMITTED, b"[]"), "COMMITTED is broken"),
    "another step's COMMITTED": (write(COMMITTED, b'{"step": 1}'), "COMMITTED is of step 1"),
    "no weights": (remove("test/model.safetensors"), "test/model.safetensors is missing"),
    "truncated weights": (cut("code/model.safetensors"), r"code/model.safetensors has \d+ of \d+ bytes"),
    "weights of zeros": (zero("code/model.safetensors"), "code/model.safetensors is broken"),
    "no optimizer": (remove("code/optimizer.pt"), "code/optimizer.pt is missing"),
    "an optimizer of zeros": (zero("test/optimizer.pt"), "test/optimizer.pt is broken"),
    "a broken state": (write("arena/state.json", b'{"step": 3'), "arena/state.json has"),
    "no trainer state": (remove("code/trainer_state.json"), "code/trainer_state.json is missing"),
    "no folder of a policy": (remove_folder("test"), "test/model.safetensors is missing"),
    "no arena": (remove_folder("arena"), "arena/state.json is missing"),
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("noted", [True, False], ids=["sizes known", "written by an earlier version"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(run, kind, noted):
    harm, says = DAMAGES[kind]
    if not noted:
        for step in (1, 2, 3):
            (run.checkpoint(step) / COMMITTED).write_text(json.dumps({"step": step}))
    harm(run.checkpoint(3))
    point = resume_point(run)
    assert point.step == 2
    assert list(point.damaged) == [3]
    if noted:
        import re

        assert re.match(says, point.damaged[3]), point.damaged[3]

    folder, moved = set_aside(run, point)
    assert folder == run.path / "set-aside" / "after-step-000002"
    assert moved == [
        "1 line of metrics",
        "1 event of the Mistake Book",
        "1 file of rollouts",
        "1 file of evaluations",
        "1 checkpoint",
    ]
    assert json.loads((folder / "metrics.jsonl").read_text())["step"] == 3
    assert names(folder / "checkpoints") == ["step-000003"]
    with MistakeStore(folder / "mistakes.sqlite") as store:
        assert [tuple(event) for event in store.events("p")] == [(3, "p", "assert f(1) == 2", 1, "candidate 3")]
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    assert names(run.path / "rollouts") == ["step-000001.parquet", "step-000002.parquet"]
    assert os.readlink(run.path / "checkpoints" / "latest") == "step-000002"
    assert resume_point(run) == ResumePoint(2, {})


def test_starting_over_has_to_be_asked_for(run):
    for step in (1, 2, 3):
        (run.checkpoint(step) / COMMITTED).unlink()
    with pytest.raises(UserError, match="checkpoint 3 is damaged: COMMITTED is missing; checkpoint 2") as caught:
        resume_point(run)
    assert "--resume --start-over" in caught.value.hint
    folder, moved = set_aside(run, resume_point(run, start_over=True))
    assert folder.name == "after-step-000000"
    assert "4 lines of metrics" in moved
    assert "3 checkpoints" in moved
    assert run.metrics() == []
    assert names(run.path / "checkpoints") == []
    assert resume_point(run) == ResumePoint(0, {})


def test_checkpoints_that_are_gone_are_missed(run):
    for path in (run.path / "checkpoints").iterdir():
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    with pytest.raises(UserError, match="go to step 3, and its checkpoints are gone"):
        resume_point(run)
    run.recipe_file.write_text(recipe_text(load_recipe("tiny", ["checkpoint.every=3"])))
    assert resume_point(run).step == 0  # none was due yet
    run.recipe_file.write_text(recipe_text(load_recipe("tiny", ["checkpoint.every=null"])))
    with pytest.raises(UserError, match=r"saves no checkpoints \(checkpoint.every=null\)"):
        resume_point(run)
    assert resume_point(run, start_over=True).step == 0
    run.recipe_file.write_text(recipe_text(load_recipe("tiny", ["checkpoint.every=3"])))
    (run.path / "checkpoints" / "latest").symlink_to("step-000003")
    with pytest.raises(UserError, match="checkpoint 3 is damaged: it is gone"):
        resume_point(run)


@pytest.mark.parametrize("harm", ["lost", "truncated", "emptied"])
def test_a_run_without_its_run_json_does_not_start_over_by_itself(run, harm):
    file = run.path / "run.json"
    if harm == "lost":
        file.unlink()
    else:
        file.write_text('{"name": ' if harm == "truncated" else "{}")
    with pytest.raises(UserError, match=r"run\.json is missing or broken"):
        resume_point(run)
    folder, moved = set_aside(run, resume_point(run, start_over=True))
    assert (folder / "run.json").exists() == (harm != "lost")
    assert ("a broken run.json" in moved) == (harm != "lost")
    assert run.info() == {}


@pytest.mark.parametrize("harm", ["lost", "foreign", "broken"])
def test_a_book_that_is_not_the_checkpoint_s_is_refused_before_anything_is_cut(run, harm):
    run.mistakes_file.unlink()
    if harm == "foreign":
        with MistakeStore(run.mistakes_file) as store:
            store.append(1, [("q", "assert f(2) == 2", 1, None)])
    if harm == "broken":
        run.mistakes_file.write_bytes(b"no book" * 1000)
    with pytest.raises(UserError, match="Mistake Book") as refused:
        resume_point(run)
    assert "--start-over" in refused.value.hint
    assert len(run.metrics()) == 4
    _, moved = set_aside(run, resume_point(run, start_over=True))
    assert any("Mistake Book" in what for what in moved) == (harm != "lost")
    with MistakeStore(run.mistakes_file) as store:
        assert store.problems() == []


def test_metrics_that_cannot_be_read_are_set_aside_whole(run):
    before = run.metrics_file.read_bytes().replace(b'{"step": 2', b"\xff\xfe", 1)
    run.metrics_file.write_bytes(before)
    folder, moved = set_aside(run, resume_point(run))
    assert moved == ["1 line of metrics that no run writes"]
    assert (folder / "metrics-before.jsonl").read_bytes() == before
    assert [line["step"] for line in run.metrics()] == [0, 1, 3]
    assert set_aside(run, resume_point(run)) is None


def test_what_a_crash_leaves_is_no_checkpoint_and_goes_on_resume(run):
    (run.pending / "code").mkdir(parents=True)
    (run.path / "checkpoints" / ".work" / "code").mkdir(parents=True)
    (run.path / "checkpoints" / ".step-000004.tmp").mkdir()
    (run.path / "checkpoints" / ".step-000001.deleted").mkdir()
    with open(run.metrics_file, "a") as file:
        file.write('{"step": 5, "co')
    assert set_aside(run, resume_point(run)) is None
    assert names(run.path / "checkpoints") == ["latest", "step-000001", "step-000002", "step-000003"]
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3]


def test_a_crash_between_a_commit_and_its_link_is_mended(run):
    link = run.path / "checkpoints" / "latest"
    link.unlink()
    link.symlink_to("step-000002")
    set_aside(run, resume_point(run))
    assert os.readlink(link) == "step-000003"


def test_what_is_set_aside_twice_has_a_folder_each(run):
    (run.checkpoint(3) / COMMITTED).unlink()
    first, _ = set_aside(run, resume_point(run))
    run.append_metrics({"step": 3, "arena": {}})
    second, moved = set_aside(run, resume_point(run))
    assert (first.name, second.name) == ("after-step-000002", "after-step-000002-2")
    assert moved == ["1 line of metrics"]


def test_a_checkpoint_knows_its_files(run):
    note = json.loads((run.checkpoint(3) / COMMITTED).read_text())
    assert note["step"] == 3
    assert note["files"]["code/optimizer.pt"] == (run.checkpoint(3) / "code" / "optimizer.pt").stat().st_size
    assert damage(run.checkpoint(3), 3, ROLES) is None
    assert damage(run.checkpoint(3), 3, (*ROLES, "third")) == "third lacks its weights"


def test_what_may_change_while_a_run_goes_on(run):
    allowed = ["train.max_steps=40", "checkpoint.every=2", "eval.limit=1", "faults.deadline_s=9", "train.epochs=30"]
    recipe, changed = resumed_recipe(run.recipe_file, [*allowed, "preflight.enabled=true"])
    assert (recipe.train.max_steps, recipe.checkpoint.every, recipe.eval.limit) == (40, 2, 1)
    assert changed["train.max_steps"] == [26, 40]
    assert changed["checkpoint.every"] == [1, 2]
    assert "preflight.enabled" not in changed  # as it was
    for refused in ("train.threads=2", "optim.learning_rate=1", "data.train=x", "model=x", "nonsense=1", "trai.x=2"):
        with pytest.raises(UserError, match="cannot change on --resume"):
            resumed_recipe(run.recipe_file, [refused])
    with pytest.raises(UserError, match="unknown key"):
        resumed_recipe(run.recipe_file, ["eval.evry=2"])


def test_copies_that_somebody_keeps_are_left_alone(run):
    shutil.copytree(run.checkpoint(3), run.path / "checkpoints" / "step-000003-mine")
    (run.path / "rollouts" / "step-one.parquet").write_text("")
    (run.checkpoint(3) / COMMITTED).unlink()
    assert run.committed_steps() == [1, 2]
    set_aside(run, resume_point(run))
    assert (run.path / "checkpoints" / "step-000003-mine").is_dir()
    assert (run.path / "rollouts" / "step-one.parquet").exists()
