"""Filters that need a model: tokens of the rendered prompt, and how often a model solves a problem."""

import json
from functools import partial

import pytest

from codea1_cli.data import WorkFolder
from codea1_cli.data.pipeline import Pipeline
from codea1_cli.data.sources.rows import FileRows
from codea1_cli.data.sources.table import MappedRows
from codea1_cli.data.stages import ProblemSampler, PromptCounter, SolveRate, solve_rate
from codea1_cli.errors import UserError
from codea1_cli.problems.problem import read_problems
from codea1_cli.recipe.data_options import Options, SolveRule, read_keep
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.tiny import problems_path

TINY = "builtin:tiny"


@pytest.fixture(scope="module")
def problems():
    return read_problems(problems_path("train"), limit=6)


@pytest.fixture(scope="module")
def rate():
    sandbox = LocalSandbox(workers=1, warm=())
    yield partial(solve_rate, sandbox, Limits(time_s=10.0))
    sandbox.close()


def test_prompts_are_counted_as_training_renders_them(problems, tmp_path):
    counter = PromptCounter(TINY)
    count = counter.count(problems[0])
    longer = problems[0].model_copy(update={"question": problems[0].question + " And once more."})
    assert 10 < count < counter.count(longer)
    template = tmp_path / "long.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}")
    assert PromptCounter(TINY, template).count(problems[0]) > count
    template.write_text("{{ raise_exception('no') }}")
    with pytest.raises(UserError, match="cannot be rendered"):
        PromptCounter(TINY, template).count(problems[0])
    with pytest.raises(UserError, match=r"none\.jinja"):
        PromptCounter(TINY, tmp_path / "none.jinja")


def test_ranges():
    assert read_keep("0.1:0.9") == (0.1, 0.9)
    for text in ("0.9:0.1", "0.5", "a:b", "-1:1", "0:2", "nan:1"):
        with pytest.raises(UserError):
            read_keep(text)


def test_rates_are_of_what_could_be_scored(problems, rate):
    problem = problems[0]
    right = f"```python\n{problem.reference}\n```"
    assert rate(problem, [right, "no program", right, "```python\ndef other(): pass\n```"]) == SolveRate(0.5, 4)
    assert rate(problem.model_copy(update={"tests": []}), [right]) == SolveRate(None, 0)


def test_samples_come_from_the_prompts_of_training(problems):
    sampler = ProblemSampler(SolveRule(TINY, n=2, max_new_tokens=12))
    first = sampler.sample(problems[:2], seed=3)
    assert [len(replies) for replies in first] == [2, 2]
    assert first == sampler.sample(problems[:2], seed=3)
    assert first != sampler.sample(problems[:2], seed=4)
    assert all("```python" in text for replies in first for text in replies)


class Scripted:
    """Solves problem i in i of 4 samples; counts how often it is asked."""

    asked = 0

    def sample(self, problems, seed):
        Scripted.asked += len(problems)
        replies = []
        for problem in problems:
            good = int(problem.id.rpartition("-")[2]) % 5
            replies.append([f"```python\n{problem.reference}\n```"] * good + ["nothing"] * (4 - good))
        return replies


def test_problems_are_kept_by_their_solve_rate_and_sampling_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("codea1_cli.data.pipeline.ProblemSampler", lambda rule, **_: Scripted())
    monkeypatch.setattr("codea1_cli.data.pipeline.SOLVE_BATCH", 16)
    rows = [
        {"id": f"p-{i}", "question": f"Question {i} about q{i}", "reference": f"def f(x):\n    return x + {i}", "tests": [f"assert f(1) == {i + 1}"]}
        for i in range(20)
    ]  # fmt: skip
    source = tmp_path / "s.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(progress=lambda *_: None, low=0.25):
        options = Options(
            decontaminate=False, dedup=False, verify=False, workers=1, solve_rate="m", n=4, keep=f"{low}:0.9"
        )  # fmt: skip
        with WorkFolder(tmp_path / ".work").locked() as work:
            return Pipeline(MappedRows(FileRows(source)), options, work, progress).run()

    def stop(stage, done, total):
        if stage == "solve" and done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stop)
    assert Scripted.asked == 20
    prepared = run()
    assert Scripted.asked == 24  # only the batch that was not finished is sampled again
    kept = {problem.id: prepared.rates[row] for row, problem in prepared.rows.living()}
    assert kept == {f"p-{i}": i % 5 / 4 for i in range(20) if i % 5 in (1, 2, 3)}
    reasons = {line["reason"] for line in prepared.removed["solve"]}
    assert reasons == {"too_hard", "too_easy"}
    assert run(low=0.5).rows.count() == 8
    assert Scripted.asked == 24
