"""A recipe's `data.source`: prepared on first use, kept by what it is made of, and used again."""

import json

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.cli.recipes import with_training_data
from codea1_cli.errors import UserError
from codea1_cli.planning import gpu_assignment
from codea1_cli.planning.gpu_assignment import Gpu, Target
from codea1_cli.problems.problem import read_problems
from codea1_cli.recipe.files import load_recipe
from codea1_cli.tiny import model_path

OPTIONS = ("data.train=null", "data.heldout=null", "data.source.decontaminate=false", "data.source.verify=false")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))
    words = ("sum", "product", "difference", "quotient", "remainder", "power", "mean", "median", "largest", "smallest")
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(
            json.dumps({"id": f"p/{i}", "question": f"Return the {word} of both numbers.", "reference":
                        f"def f{i}(a, b):\n    return a + {i} * b", "tests": [f"assert f{i}(1, 0) == 1"]}) + "\n"
            for i, word in enumerate(words)
        )
    )  # fmt: skip
    return file


def recipe(rows, *changes):
    return load_recipe("tiny", [*OPTIONS, f"data.source.name={rows}", "data.source.val=0.3", *changes])


def test_prepared_once_and_used_again(rows, tmp_path, capfd):
    first = with_training_data(recipe(rows))
    assert "preparing the recipe's training data" in capfd.readouterr().err
    train, heldout = (read_problems(path) for path in (f"{first.data.train}/train.jsonl", first.data.heldout))
    assert len(train) + len(heldout) == 10
    assert first.data.train.startswith(str(tmp_path / "cache" / "data"))
    assert with_training_data(recipe(rows)) == first
    assert capfd.readouterr().err == ""
    other = with_training_data(recipe(rows, "data.source.seed=5"))
    assert other.data.train != first.data.train
    rows.write_text(rows.read_text() + "\n")
    assert with_training_data(recipe(rows)).data.train not in (first.data.train, other.data.train)


def test_given_data_and_given_held_out_problems_stay(rows):
    assert with_training_data(recipe(rows, "data.train=builtin:tiny/train")).data.train == "builtin:tiny/train"
    made = with_training_data(recipe(rows, "data.heldout=builtin:tiny/heldout"))
    assert made.data.heldout == "builtin:tiny/heldout"
    assert made.data.train is not None


def test_what_a_run_was_trained_on_is_made_again_where_the_cache_is_gone(rows, tmp_path):
    made = with_training_data(recipe(rows))
    before = (tmp_path / made.data.train / "train.jsonl").read_bytes()
    (tmp_path / "cache").rename(tmp_path / "gone")
    assert with_training_data(made).data.train == made.data.train
    assert (tmp_path / made.data.train / "train.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.source.dificulty=hard", "did you mean difficulty?"),
        ("data.source.min_tests=-1", "min_tests: -1 is below 0"),
        ("data.source.val=much", "val: Input should be a valid number"),
        ("data.source.threshold=[near=1]", "no threshold 'near=1'"),
        ("data.source.workers=3", "unknown key workers"),
        ("data.source.time_limit_s=3", "unknown key time_limit_s; did you mean time_limit?"),
        ("data.source.max_prompt_tokens=9", "data.source.max_prompt_tokens needs a tokenizer"),
        ("data.source.n=3", "without data.source.solve_rate nothing is sampled, so data.source.n would"),
    ],
)
def test_wrong_options_are_named(rows, change, said):
    with pytest.raises(UserError, match=r"data\.source") as failure:
        recipe(rows, change)
    assert said in failure.value.what


def test_a_plan_says_what_a_first_use_takes_and_asks_nobody(hub, monkeypatch, capfd):
    assert run_app(app, ["plan", "--recipe", "1.5b", "--gpu", "h100", "--json"]) == 0
    notes = " ".join(json.loads(capfd.readouterr().out)["notes"])
    for words in ("Qwen/Qwen2.5-Coder-1.5B-Instruct, about 3.1 GB", "kodcode, 2.6 GB", "planned for 9688 problems"):
        assert words in notes
    assert run_app(app, ["train", "--recipe", "135m", "sampling.chunk=1", "test.model=a/b", "--dry-run", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert "held out: 10% of the source's" in told["data"]
    assert "427 problems to train on, 47 held out" in told["notes"]
    assert any(note.startswith("first use: fetches a/b, whose size the hub tells then") for note in told["notes"])
    local = ["model=" + str(model_path()), "data.limit=4"]
    assert run_app(app, ["train", "--recipe", "tiny", *local, "--dry-run", "--json"]) == 0
    assert "first use" not in capfd.readouterr().out
    assert hub.asked == []


SMALL = Gpu(0, "0", "NVIDIA H100", "GPU-0", 8_000)
QWEN, SMOL = "Qwen/Qwen2.5-Coder-1.5B-Instruct, about 3.1 GB (about", "SmolLM2-135M-Instruct, about 269.0 MB (about"


@pytest.mark.parametrize(
    ("words", "gpus", "says"),
    [
        ("train --recipe 1.5b --dry-run", [], (QWEN, "kodcode, 2.6 GB", "there is no GPU")),
        ("train --recipe 135m --dry-run", [], (SMOL, "mbpp, 166 kB", "this machine has 1.0 GiB")),
        ("train --recipe 1.5b code.gpus=1 test.gpus=1 --dry-run", [SMALL], (QWEN, "kodcode", "this machine offers 1")),
        ("train --recipe 135m eval.benchmarks=[humaneval] --dry-run", [SMALL],
         (SMOL, "mbpp, 166 kB", "427 problems to train on, 47 held out", "the benchmark humaneval", "has 7.8 GiB")),
        ("plan --recipe 135m test.model=a/b", [], (SMOL, "fetches a/b", "mbpp", "the shape of a/b is not known here")),
    ],
)  # fmt: skip
def test_a_look_ahead_that_ends_in_an_error_says_before_it_what_a_first_use_takes(
    hub, monkeypatch, capfd, words, gpus, says
):
    """Whatever the error: no GPU, too few or too small ones, a model of which nothing is known."""
    monkeypatch.setattr(gpu_assignment, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(gpu_assignment, "_target", lambda device, vllm: Target(device, 2, 2**30, vllm))
    code, told = run_app(app, words.split()), capfd.readouterr().err
    places = [told.find(words) for words in says]
    assert code in (2, 3)
    assert -1 not in places, told
    assert max(places[:-1]) < told.index("error: ") < places[-1]
    assert gpus or not words.startswith("train --recipe 135m") or "error: 135m is meant for GPUs, and none" in told
    assert hub.asked == []


@pytest.mark.parametrize(
    ("recipe", "change", "says"),
    [
        ("135m", "data.source.split=trian", ("mbpp has no split 'trian'", "data.source.split: train, validation")),
        ("tiny", "data.source={name: kodkode}", ("data.source: no source 'kodkode'", "kodcode", "mbpp, evalplus")),
        ("tiny", "data.source={name: rows.jsonl}", ("data.source: cannot read rows.jsonl",)),
        ("tiny", "data.source={name: mbpp, difficulty: hard}", ("data.source.difficulty does not go with",)),
        ("tiny", "data.source=null", ("the recipe names no training data", "data.train=FILE")),
    ],
)
def test_what_a_run_could_not_begin_with_ends_its_look_ahead_too(hub, capfd, recipe, change, says):
    for words in (["train", "--dry-run"], ["plan"]):
        assert run_app(app, [*words, "--recipe", recipe, "model=builtin:tiny", "data.train=null", change]) == 2
        told = capfd.readouterr()
        assert all(text in told.err for text in says), told.err
        assert not told.out
        assert "--split" not in told.err
    assert run_app(app, ["recipes", "check", recipe, "data.train=null", change]) == (
        0 if change.endswith("null") else 2
    )
    assert hub.asked == []


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("135m", ["data.source.data=mbpp.jsonl"], "write data.source.split=null: data.source.split belongs to a hub"),
        ("135m", ["data.source.name=rows.jsonl"], "data.source.split=null"),
        ("135m", ["data.source.name=rows.jsonl", "data.source.data=."], "data.source.data=null data.source.split=null"),
        ("1.5b", ["data.source.name=mbpp"], "data.source.difficulty=null"),
        (
            "1.5b",
            ["data.source.name=code", "data.source.split=a", "data.source.map=[question=q]"],
            "data.source.split=null",
        ),
        ("135m", ["data.source.mapping=m.yaml", "data.source.config=c"], "data.source.mapping=null data.source.config"),
    ],
)
def test_a_key_that_a_recipe_has_for_another_source_goes_as_its_hint_says(
    tmp_path, monkeypatch, hub, capfd, recipe, changes, said
):
    """What the hint says is typed until nothing of a source is refused: once, or twice for a folder's mapping."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "f.py").write_text("def f(a):\n    return a\n")
    (tmp_path / "m.yaml").write_text("question: q\n")
    for name in ("mbpp.jsonl", "rows.jsonl"):
        (tmp_path / name).write_text('{"task_id": 1}\n')
    words = ["train", "--dry-run", "--recipe", recipe, "model=builtin:tiny", *changes]
    assert run_app(app, words) == 2
    told = capfd.readouterr().err
    assert said in told
    assert "--" not in told
    while "not go with this source" in told:
        assert len(words) < 20
        words += told.split("hint: write ")[1].partition(": ")[0].split()
        run_app(app, words)
        told = capfd.readouterr().err
    assert "unknown key" not in told


@pytest.mark.parametrize("source", ["{name: a/b, val: 0.2}", "{name: kodcode, split: other}", "{name: evalplus}"])
def test_a_source_of_a_size_that_nothing_here_tells_gets_no_number_of_another(hub, capfd, source):
    words = ["train", "--recipe", "tiny", "data.train=null", f"data.source={source}", "--dry-run", "--json"]
    assert run_app(app, words) == 0
    told = json.loads(capfd.readouterr().out)
    assert "planned for 1000 problems), held out" in told["data"]
    assert any("1000 problems, a round number" in note for note in told["notes"])
    assert not any("to train on" in note for note in told["notes"])


def test_python_files_as_training_data_are_sent_to_prepare_data(tmp_path, capfd):
    (tmp_path / "code.py").write_text("def f(a):\n    return a\n")
    for place in (tmp_path, tmp_path / "code.py"):
        assert run_app(app, ["train", "--recipe", "tiny", f"data.train={place}", "--dry-run"]) == 2
        assert f"`codea1 prepare-data {place} --out problems`" in capfd.readouterr().err
