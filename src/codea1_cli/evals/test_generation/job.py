"""One call of `eval-tests`: functions, suites (sampled or given), scores, and the folder that they lie in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli.environment import installed_version
from codea1_cli.errors import UserError, counted
from codea1_cli.evals.test_generation import Function, fixed_sample, own_mutants, show_diff
from codea1_cli.evals.test_generation.entries import with_own_imports
from codea1_cli.evals.test_generation.evaluation import Scorer, killed_by_passing, score_all
from codea1_cli.evals.test_generation.execution import Outcome, TestRunner
from codea1_cli.evals.test_generation.figures import ONE_SHOT, PUBLISHED, Scoring, summary
from codea1_cli.evals.test_generation.results import ResultsFolder
from codea1_cli.evals.test_generation.sampling import (
    Progress,
    Suite,
    read_suites,
    sample_in_rounds,
    sample_suites,
    suite_of_replies,
    suite_of_text,
)
from codea1_cli.files import kept_rows, read_bytes, read_json
from codea1_cli.models.sampler import ModelRef, Sampler, SamplingSettings, context_of, open_sampler, reply_tokens
from codea1_cli.sandbox.base import Sandbox

_SHOWN = 2_000  # characters of a text that holds no test


@dataclass(frozen=True)
class EvalJob:
    """What is wanted; see the command's options. `functions` are those of the `target`, a benchmark or a file; `suites`
    is a file of given ones, else `model` is sampled."""

    target: str
    functions: Sequence[Function]
    scoring: Scoring
    sampling: SamplingSettings
    protocols: Sequence[str]
    model: ModelRef | None = None
    suites: Path | None = None
    sample: Path | None = None
    limit: int | None = None
    engine: str = "auto"
    context: int = 16_384
    out: Path | None = None
    workers: int = 2

    @property
    def label(self) -> str:
        """Whose tests they are."""
        return self.suites.stem if self.suites is not None else self.model.label if self.model else ""

    @property
    def folder(self) -> Path:
        """Where the results lie."""
        name = re.sub(r"[^\w.@-]+", "-", f"{self.label}-{Path(self.target).stem}").strip("-")
        return self.out or Path("eval-tests") / name

    def fitted(self) -> EvalJob:
        """The job with replies of the usual length where the model has room for them; results that were begun keep
        theirs, which needs no model here. Raises UserError when the model's configuration cannot be read."""
        file = self.folder / "settings.json"
        before = read_json(file, dict).get("sampling") if file.is_file() else None
        tokens = before.get("max_new_tokens") if isinstance(before, dict) else None
        if self.suites is not None or self.model is None or tokens == self.sampling.max_new_tokens:
            return self
        tokens = tokens or reply_tokens(self.model, self.sampling.max_new_tokens)
        return replace(self, sampling=replace(self.sampling, max_new_tokens=tokens))


def run_benchmark(job: EvalJob, sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """The benchmark: samples where suites are not given, scores, and writes `results.json`; returns what it holds.

    Raises:
        UserError: no function loads, or the folder holds results of other settings.
    """
    sample = fixed_sample(job.functions, job.sample)
    scorer = Scorer(sandbox, job.scoring)
    folder = JobFolder(job)
    functions, faults = _loading(scorer, folder.functions, job.workers)
    if job.suites is None:
        scorer.check_tools()
    found: dict[str, Any] = {**folder.about(), "not_loading": faults, "protocols": {}, "functions": {}, "unscored": 0}
    found["without_suite"] = folder.without_suite(functions)
    suites = {protocol: folder.suites(protocol, functions, progress) for protocol in job.protocols}
    folder.end_sampling()
    for protocol, written in suites.items():
        file = folder.path / f"rows.{protocol}.jsonl"
        folder.begin()
        with folder.timed(f"scoring, {protocol}"):
            rows = score_all(scorer, protocol, functions, written, file, workers=job.workers, progress=progress)
        found["protocols"][protocol] = summary(protocol, rows, job.scoring, sample)
        found["functions"][protocol] = [row.dump(protocol) for row in rows]
        found["unscored"] += sum(row.unscored for row in rows)
    return folder.finish(found)


def _loading(scorer: Scorer, functions: Sequence[Function], workers: int) -> tuple[list[Function], dict[str, str]]:
    """The functions that load, and why the others do not. Raises UserError when none does: a result without one says
    nothing."""
    faults = scorer.faults(functions, workers)
    there = [function for function in functions if function.id not in faults]
    if faults and not there:
        name, fault = next(iter(faults.items()))
        raise UserError(
            f"none of {counted(len(faults), 'function')} loads: {name}: {fault}",
            hint="--python names an interpreter that has what they import",
        )
    return there, faults


def sample_only(job: EvalJob, progress: Progress) -> dict[str, Any]:
    """Samples what is missing and scores nothing, on a machine without a sandbox, cosmic-ray or coverage, say.

    Raises:
        UserError: suites were given, or the folder holds results of other settings.
    """
    if job.suites is not None:
        raise UserError("given suites need no sampling", hint="leave out --suites or --sample-only")
    folder = JobFolder(job)
    for protocol in job.protocols:
        folder.suites(protocol, folder.functions, progress)
    folder.end_sampling()
    return folder.finish({**folder.about(), "not_loading": {}, "unscored": 0})


def run_file(job: EvalJob, sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """A user's file: suites that a model writes at once, or given ones, and the mutants that survive them.

    Raises:
        UserError: as `run_benchmark`.
    """
    scorer = Scorer(sandbox, job.scoring)
    folder = JobFolder(job)
    functions, faults = _loading(scorer, folder.functions, job.workers)
    suites = folder.suites(ONE_SHOT, functions, progress)
    folder.end_sampling()
    if job.suites is not None:
        functions = [function for function in functions if function.id in suites]
    rows = []
    folder.begin()
    with folder.timed("scoring"):
        for number, function in enumerate(functions):
            suite = suites.get(function.id, Suite(function.id, (), ""))
            rows.append(scored_function(scorer.runner, function, suite, Path(job.target).stem))
            progress("scoring", number + 1, len(functions))
    unscored = sum(row["unscored"] for row in rows)
    return folder.finish({**folder.about(), "not_loading": faults, "functions": rows, "unscored": unscored})


def scored_function(runner: TestRunner, function: Function, suite: Suite, module: str) -> dict[str, Any]:
    """Runs the tests on the function, of the file `module`, and those that pass on the mutants that change its own
    lines. What holds no test is named and counted as one that does not pass."""
    tests, given = list(suite.tests), suite.given
    if not tests and suite.text.strip():
        tests, given = [None], (suite.text[:_SHOWN],)
    shown, tests = tests, [test and with_own_imports(test, module, function.name) for test in tests]
    runs = [runner.run(function.program, function.name, test) for test in tests]
    mutants = own_mutants(function)
    killed = killed_by_passing(runner, function, tests, runs, mutants)
    unscored = killed is None or any(run.outcome is Outcome.UNSCORED for run in runs)
    if killed is None or unscored:
        killed, survivors = [], []
    else:
        survivors = [mutant for mutant, dead in zip(mutants, killed, strict=True) if not dead]
    return {
        "id": function.id,
        "mutants": len(mutants),
        "killed": sum(killed),
        "passing": sum(run.passed for run in runs),
        "unscored": unscored,
        "tests": [
            {"test": test or next(iter(given[at : at + 1]), ""), "outcome": run.outcome.value, "detail": run.detail}
            for at, (test, run) in enumerate(zip(shown, runs, strict=True))
        ],
        "survivors": [
            {"operator": mutant.operator, "line": mutant.line, "diff": show_diff(function.program, mutant)}
            for mutant in survivors
        ],
    }


class JobFolder(ResultsFolder):
    """The folder of one job, and the suites that lie there or are sampled now."""

    def __init__(self, job: EvalJob) -> None:
        self.job, self.functions = job, job.functions[: job.limit]
        self.given = read_suites(job.suites) if job.suites is not None else None
        self.unknown = sorted(set(self.given or ()) - {function.id for function in self.functions})
        if self.given is not None and len(self.unknown) == len(self.given):
            raise UserError(
                f"no suite of {job.suites} is for a function that is here", hint=f"their ids: {self.unknown[:3]}"
            )
        self.model = job.model if self.given is None else None
        self.sampler: Sampler | None = None
        self._replies = job.folder / "suites.replies.jsonl"
        super().__init__(job.folder, self._settings_of_job())

    def _settings_of_job(self) -> dict[str, Any]:
        job = self.job
        parts = [[f.id, f.name, f.program, f.description, f.calls] for f in self.functions]
        found: dict[str, Any] = {
            "target": Path(job.target).name,
            "data_hash": hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16],
            "scoring": asdict(job.scoring),
        }
        if job.suites is not None:
            found["suites_hash"] = hashlib.sha256(read_bytes(job.suites)).hexdigest()[:16]
        elif self.model is not None:
            found |= {"model": _named(self.model), "sampling": asdict(job.sampling), "context": job.context}
        return found

    def suites(self, protocol: str, functions: Sequence[Function], progress: Progress) -> Mapping[str, Suite]:
        """The given suites, else those in the folder, what is missing sampled first."""
        if self.given is not None:
            return self.given
        with self.timed(f"sampling, {protocol}"):
            return self._sampled(protocol, functions, progress)

    def _sampled(self, protocol: str, functions: Sequence[Function], progress: Progress) -> Mapping[str, Suite]:
        file = self.path / f"suites.{protocol}.jsonl"
        k, count = self.job.scoring.k, self.job.scoring.tests_per_suite
        if protocol == PUBLISHED:
            replies = {row["task_id"]: row["replies"] for row in kept_rows(file)}
            if any(len(replies.get(f.id, ())) < k for f in functions):
                sampler, sampling, context = self._open(), self.job.sampling, self._context()
                replies = sample_in_rounds(sampler, functions, k, sampling, file, context=context, progress=progress)
            return {name: suite_of_replies(name, texts) for name, texts in replies.items()}
        texts = {row["task_id"]: row["suite"] for row in kept_rows(file)}
        if any(function.id not in texts for function in functions):
            sampler, sampling, context = self._open(), self.job.sampling, self._context()
            texts = sample_suites(sampler, functions, count, sampling, file, context=context, progress=progress)
        return {name: suite_of_text(name, text) for name, text in texts.items()}

    def without_suite(self, functions: Sequence[Function]) -> list[str]:
        """The functions that the given file has no suite for: they count as failing."""
        return [f.id for f in functions if f.id not in self.given] if self.given is not None else []

    def _open(self) -> Sampler:
        if self.sampler is None:
            assert self.model is not None
            self._context()
            self.sampler = open_sampler(self.model, self.job.engine, self._replies)
            self.begin()
            self.write("model.json", self.sampler.describe())
        return self.sampler

    def _context(self) -> int:
        """Tokens that a prompt and its reply may have together: what was asked for, within what the model takes."""
        assert self.model is not None
        longest = context_of(self.model) or self.job.context
        if longest <= self.job.sampling.max_new_tokens:
            raise UserError(
                f"the model takes {longest} tokens, a reply alone may have {self.job.sampling.max_new_tokens}",
                hint="lower --max-new-tokens",
            )
        return min(self.job.context, longest)

    def about(self) -> dict[str, Any]:
        """What identifies these results."""
        return {
            "label": self.job.label,
            "folder": str(self.path),
            "settings": self.settings,
            "model": self.read("model.json"),
            "unknown_suites": self.unknown,
            "versions": {name: installed_version(name) for name in ("codea1", "cosmic-ray", "coverage")},
        }

    def end_sampling(self) -> None:
        """Gives the model's memory back before anything is scored."""
        if self.sampler is not None:
            made, self.sampler = self.sampler, None
            made.close()
            self.add("sampled.json", {"tokens": made.tokens, "seconds": made.seconds, **made.spent})
            self._replies.unlink(missing_ok=True)

    def finish(self, found: dict[str, Any]) -> dict[str, Any]:
        """Writes `results.json`: `found`, with the model, the seconds spent and the speed of sampling; returns it."""
        self.begin()
        found |= {"model": self.read("model.json"), "seconds": self.read("seconds.json") or {}} | self.speed()
        self.write("results.json", found)
        return found


def _named(model: ModelRef) -> dict[str, Any]:
    """A model by names that hold on another machine as well, where results may be gone on with."""
    where = model.server.identity() if model.server else {}
    return {"label": model.label, "run": Path(model.run).name if model.run else None, "step": model.step, **where}
