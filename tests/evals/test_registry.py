"""A benchmark is one row: whoever evaluates, validates or decontaminates learns of a new one from the registry alone."""

import asyncio
import importlib
import json
from types import SimpleNamespace

import pytest

from codea1_cli.cli import app, eval_code
from codea1_cli.cli.console import run_app
from codea1_cli.data.decontaminate import load_benchmarks
from codea1_cli.engine import arena as arena_module
from codea1_cli.engine.arena import Arena
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl.rank import TrainingRank
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals import registry
from codea1_cli.evals.benchmark import CodeTask, ReferenceReport, Sample, Scored, Status
from codea1_cli.evals.registry import BenchmarkRow, TaskSource, benchmark_row, open_benchmark, open_test_benchmark
from codea1_cli.problems.benchmark_files import PublicTask, Published, find_file
from codea1_cli.problems.problem import read_problems
from codea1_cli.problems.row_files import whole_rows
from codea1_cli.recipe.files import load_recipe
from codea1_cli.runs.run_dir import RunDir


class Sums:
    """A throw-away benchmark: a solution is right when it is the task's sum, as text. Nothing is executed."""

    name, title, columns, styles, max_new_tokens = "sums", "Sums", ("tests",), ("plain",), 4

    def load(self, data):
        rows = [row for _, row in whole_rows(registry.ROWS["sums"].file(data))]
        return [CodeTask(row["task_id"], "", row["prompt"], str(eval(row["prompt"]))) for row in rows]

    def public_task(self, row):
        return PublicTask(self.title, row["task_id"], row["prompt"], row["prompt"], "sum")

    def problem(self, row):
        program = f"def f():\n    return {row['prompt']}"
        return {"id": row["task_id"], "question": row["prompt"], "reference": program, "calls": ["f()"]}

    def data_hash(self):
        return "0" * 16

    def prompts(self, tasks, tokenizer, style):
        return [[ord(letter) for letter in task.prompt] for task in tasks]

    def stop(self, style):
        return ("\n",)

    def sample(self, task, text, number, style):
        return Sample(task.id, text.strip(), text, number)

    def read(self, row, task, number):
        return Sample(task.id, row["solution"], row["solution"], number)

    def sanitize(self, task, raw):
        return raw.strip()

    def missing(self, tasks, options):
        return {}

    def check_references(self, options, progress, ids=None):
        return ReferenceReport(len(ids or ()))

    def score(self, samples, options, progress):
        right = {"Sums/0": "3", "Sums/1": "7"}
        verdicts = [Status.PASS if one.solution == right[one.task_id] else Status.FAIL for one in samples]
        return [Scored(one.task_id, one.number, {"tests": v}) for one, v in zip(samples, verdicts, strict=True)]

    def close(self):
        pass


@pytest.fixture
def sums(monkeypatch, tmp_path):
    """The folder of its file, while the row is there."""
    published = {"full": Published("nobody/sums", "0" * 40, "sums.parquet", 2, 1000)}
    row = BenchmarkRow(
        name="sums", title="Sums", about="two sums", role="code", prefix="Sums/", published=published,
        holds=lambda row: "prompt" in row, open=lambda _subset: Sums(), source=TaskSource("all-sums", "All sums", "MIT"),
    )  # fmt: skip
    monkeypatch.setitem(registry.ROWS, "sums", row)
    tasks = [{"task_id": f"Sums/{number}", "prompt": text} for number, text in enumerate(("1 + 2", "3 + 4"))]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return tmp_path


def test_eval_code_has_a_command_for_it(sums, capsys):
    (sums / "samples.jsonl").write_text(
        "".join(json.dumps({"task_id": f"Sums/{number}", "solution": "3"}) + "\n" for number in (0, 1))
    )
    try:
        app = importlib.reload(eval_code).app
        code = run_app(app, ["sums", "--samples", str(sums / "samples.jsonl"), "--data", str(sums), "--json"])
        result = json.loads(capsys.readouterr().out)
    finally:
        registry.ROWS.pop("sums")
        importlib.reload(eval_code)
    assert code == 0
    assert (result["title"], result["figures"]["tests"]["pass@1"]) == ("Sums", 0.5)


def test_recipes_and_decontamination_know_it(sums):
    recipe = load_recipe("tiny", ["eval.benchmarks=[sums]", "eval.best=sums/tests/pass@1"])
    assert recipe.eval.benchmarks == ["sums"]
    with pytest.raises(UserError, match=r"unknown benchmark 'products'; there are .*sums"):
        load_recipe("tiny", ["eval.benchmarks=[products]"])
    tasks, missing = load_benchmarks(sums)
    assert [(task.benchmark, task.id) for task in tasks] == [("Sums", "Sums/0"), ("Sums", "Sums/1")]
    assert "Sums" not in missing


def test_its_tasks_become_problems(sums, tmp_path, capsys):
    words = ["prepare-data", "all-sums", "--out", str(tmp_path / "out"), "--benchmarks", str(sums), "--val", "0"]
    assert run_app(app, [*words, "--no-verify", "--no-dedup", "--min-tests", "0"]) == 0
    assert "These are benchmark tasks" in capsys.readouterr().err
    made = read_problems(tmp_path / "out" / "train.jsonl")
    assert [(one.id, one.source, one.license) for one in made] == [
        (f"Sums/{number}", "All sums (Sums)", "MIT") for number in (0, 1)
    ]


class Policy:
    """A rank's trainer and tokenizer: whatever it is asked, it says `3`, and goes on behind the stop string."""

    use_vllm = False

    def __init__(self):
        self.generation_config = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=48)
        self.model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=64))
        self.processing_class = SimpleNamespace(
            eos_token_id=0, batch_decode=lambda group, skip_special_tokens: ["".join(map(chr, ids)) for ids in group]
        )
        self.asked = []

    def _generate_single_turn(self, prompts, images, fields, n):
        config = self.generation_config
        self.asked.append((["".join(map(chr, ids)) for ids in prompts], config.temperature, config.max_new_tokens))
        return [list(map(ord, "3\n4")) for _ in prompts], None


def test_it_measures_a_policy_during_training(sums, monkeypatch):
    judge = SimpleNamespace(workers=1, close=lambda: None, canary=lambda: None)
    monkeypatch.setattr(arena_module, "run_judge", lambda *_, **__: judge)
    run = RunDir(sums / "run")
    run.path.mkdir()
    run.create()
    wish = ["eval.benchmarks=[sums]", f"eval.benchmark_data={sums}", "eval.benchmark_n=2", "data.heldout=null"]
    recipe = load_recipe("tiny", [*wish, "eval.best=sums/tests/pass@1"])
    arena, policy = Arena(recipe, str(run.path), ["code[0]", "test[0]"]), Policy()
    posted = []

    async def go():
        await arena.start(Schedule((("p",),), 0), {}, [], 0, 1)
        share = await arena.evaluation_share("sums", 0, 1)
        client = SimpleNamespace(evaluation_share=lambda *_: share, post_evaluation=lambda *call: posted.append(call))
        for role in ("code", "test"):
            spec = SimpleNamespace(policy=role, rank=0, ranks=1, label=f"{role}[0]")
            rank = TrainingRank(spec, recipe, client, {}, Schedule(((),), 1), 1)
            rank.trainer, rank.phase = policy, lambda *_: None
            rank.evaluate(0)
        (call,) = posted
        await arena.post_evaluation(*call)
        await arena.close()

    asyncio.run(go())
    assert policy.asked == [(["1 + 2", "1 + 2", "3 + 4", "3 + 4"], 0.7, 4)]
    (line,) = run.metrics()
    assert (line["eval"]["set"], line["eval"]["tests/pass@1"], line["eval"]["n"]) == ("sums", 0.5, 2)


def test_rows_open_what_they_name():
    for name in registry.names("code"):
        assert open_benchmark(name).name == name
        assert open_benchmark(name).title == benchmark_row(name).title
    for name in registry.names("test"):
        assert open_test_benchmark(name).title
    with pytest.raises(UserError, match="no benchmark 'ult'"):
        open_benchmark("ult")
    with pytest.raises(UserError, match="no subset 'medium'"):
        open_benchmark("bigcodebench", "medium")


def rows_file(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_known_by_what_it_holds(tmp_path, monkeypatch):
    nowhere = Published("nobody/nothing", "0" * 40, "x.parquet", 2, 1000)

    def found(data=None):
        return find_file("A", lambda row: row.get("kind") == "a", nowhere, data)

    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(UserError, match=f"no A below {folder}"):
        found(folder)
    with pytest.raises(EnvironmentFault, match="no file of A is here"):
        found()
    rows_file(folder / "first.jsonl", {"kind": "b"})
    (folder / "broken.jsonl").write_text("{")
    part = rows_file(folder / "data" / "bench" / "anything.json", {"kind": "a"})
    assert found(folder) == part
    monkeypatch.setenv("CODEA1_BENCHMARKS", str(folder))
    assert found() == part
    more = rows_file(folder / "z.jsonl", *[{"kind": "a"}] * 3)
    assert found() == part, "a larger set of the same kind is another one"
    whole = rows_file(folder / "y.jsonl", *[{"kind": "a"}] * 2)
    assert found() == whole
    assert found(more) == more
    monkeypatch.setenv("CODEA1_BENCHMARKS", str(tmp_path / "away"))
    with pytest.raises(UserError, match="CODEA1_BENCHMARKS: there is no folder"):
        found()
