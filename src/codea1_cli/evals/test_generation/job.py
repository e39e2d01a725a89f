"""One call of `eval-tests`: functions, suites (sampled or given), scores, and the folder that they lie in."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError
from codea1_cli.evals import registry
from codea1_cli.evals.test_generation import own_file, published
from codea1_cli.evals.test_generation.evaluation import Scorer, Scoring, check_results, open_results, score_all, summary
from codea1_cli.evals.test_generation.functions import Function, fixed_sample, functions_of_file
from codea1_cli.evals.test_generation.mutants import show_diff
from codea1_cli.evals.test_generation.sampling import Progress, ask_at_once, ask_in_rounds
from codea1_cli.evals.test_generation.suites import Suite, read_rows, read_suites, suite_of_replies, suite_of_text
from codea1_cli.models.sampler import ModelRef, Sampler, SamplingSettings, open_sampler
from codea1_cli.runs.model_reference import find_model
from codea1_cli.sandbox.base import Sandbox


@dataclass(frozen=True)
class Job:
    """What was asked for; see the command's options."""

    target: str
    scoring: Scoring
    sampling: SamplingSettings
    protocols: Sequence[str]
    model: str | None = None
    step: int | None = None
    runs: Path | None = None
    suites: Path | None = None
    data: Path | None = None
    sample: Path | None = None
    limit: int | None = None
    engine: str = "auto"
    context: int = 16_384
    out: Path | None = None
    workers: int = 2


def run_benchmark(job: Job, sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """The benchmark: samples where suites are not given, scores, and writes `results.json`; returns what it holds.

    Raises:
        UserError: no data, no model, or a folder with results of other settings.
    """
    functions = registry.open_test_benchmark(job.target).load(job.data)
    sample = fixed_sample(functions, job.sample)
    functions = functions[: job.limit]
    scorer = Scorer(sandbox, job.scoring)
    asked = Asked(job, functions, job.protocols)
    faults = scorer.faults(functions, job.workers)
    there = _loading(functions, faults)
    found: dict[str, Any] = {**asked.about(), "not_loading": faults, "protocols": {}, "functions": {}, "unscored": 0}
    found["without_suite"] = asked.without_suite(there)
    for protocol in job.protocols:
        suites = asked.suites(protocol, there, progress)
        file = asked.folder / f"rows.{protocol}.jsonl"
        asked.begin()
        with asked.timed(f"scoring, {protocol}"):
            rows = score_all(scorer, protocol, there, suites, file, workers=job.workers, progress=progress)
        found["protocols"][protocol] = summary(protocol, rows, job.scoring, sample)
        found["functions"][protocol] = [asdict(row) for row in rows]
        found["unscored"] += sum(row.unscored for row in rows)
    return asked.finish(found)


def _loading(functions: Sequence[Function], faults: Mapping[str, str]) -> list[Function]:
    """The functions that load. Raises UserError when none does: a result without one says nothing."""
    there = [function for function in functions if function.id not in faults]
    if faults and not there:
        name, fault = next(iter(faults.items()))
        raise UserError(
            f"none of the {len(faults)} functions loads: {name}: {fault}",
            hint="--python names an interpreter that has what they import",
        )
    return there


def sample_only(job: Job, progress: Progress) -> dict[str, Any]:
    """Samples what is missing and scores nothing, on a machine without a sandbox, cosmic-ray or coverage, say.

    Raises:
        UserError: as `run_benchmark`; suites were given.
    """
    if job.suites is not None:
        raise UserError("given suites need no sampling", hint="leave out --suites or --only-sample")
    listed = job.target in registry.names("test")
    loaded = registry.open_test_benchmark(job.target).load(job.data) if listed else functions_of_file(Path(job.target))
    functions = loaded[: job.limit]
    asked = Asked(job, functions, job.protocols)
    for protocol in job.protocols if listed else ("one-shot",):
        asked.suites(protocol, functions, progress)
    return asked.finish({**asked.about(), "not_loading": {}, "unscored": 0})


def run_file(job: Job, sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """A user's file: suites that a model writes at once, or given ones, and the mutants that survive them."""
    functions = functions_of_file(Path(job.target))[: job.limit]
    scorer = Scorer(sandbox, job.scoring)
    asked = Asked(job, functions, ())
    faults = scorer.faults(functions, job.workers)
    there = _loading(functions, faults)
    suites = asked.suites("one-shot", there, progress)
    if job.suites is not None:
        there = [function for function in there if function.id in suites]
    rows = []
    asked.begin()
    with asked.timed("scoring"):
        for number, function in enumerate(there):
            suite = suites.get(function.id, Suite(function.id, (), ""))
            rows.append(_file_row(own_file.score(scorer.runner, function, suite.tests), function))
            progress("scoring", number + 1, len(there))
    unscored = sum(row["unscored"] for row in rows)
    return asked.finish({**asked.about(), "not_loading": faults, "functions": rows, "unscored": unscored})


def _file_row(row: own_file.FileRow, function: Function) -> dict[str, Any]:
    tests = [{"test": test, "outcome": outcome, "detail": detail} for test, outcome, detail in row.tests]
    survivors = [
        {"operator": mutant.operator, "line": mutant.line, "diff": show_diff(function.program, mutant)}
        for mutant in row.survivors
    ]
    counts = {"mutants": row.mutants, "killed": row.killed, "passing": row.passing, "unscored": row.unscored}
    return {"id": row.id, **counts, "tests": tests, "survivors": survivors}


class Asked:
    """The folder of one job, and the suites that lie there or are sampled now."""

    def __init__(self, job: Job, functions: Sequence[Function], protocols: Sequence[str]) -> None:
        self.job = job
        self.given = read_suites(job.suites) if job.suites is not None else None
        self.unknown = sorted(set(self.given or ()) - {function.id for function in functions})
        if self.given is not None and len(self.unknown) == len(self.given):
            raise UserError(
                f"no suite of {job.suites} is for a function that is here", hint=f"their ids: {self.unknown[:3]}"
            )
        self.model = find_model(job.model, role="test", step=job.step, runs_root=job.runs) if not self.given else None
        label = job.suites.stem if job.suites is not None else self.model.label if self.model else ""
        name = re.sub(r"[^\w.@-]+", "-", f"{label}-{Path(job.target).stem}").strip("-")
        self.folder = job.out or Path("eval-tests") / name
        self.label = label
        self.settings = self._settings(functions)
        check_results(self.folder, self.settings)
        self.sampler: Sampler | None = None

    def _settings(self, functions: Sequence[Function]) -> dict[str, Any]:
        job = self.job
        parts = [[f.id, f.name, f.program, f.description, f.calls] for f in functions]
        found: dict[str, Any] = {
            "target": Path(job.target).name,
            "data_hash": hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16],
            "scoring": asdict(job.scoring),
        }
        if job.suites is not None:
            found["suites_hash"] = hashlib.sha256(job.suites.read_bytes()).hexdigest()[:16]
        elif self.model is not None:
            found |= {"model": _named(self.model), "sampling": asdict(job.sampling), "context": job.context}
        return found

    def begin(self) -> None:
        """Makes the folder, now that nothing can refuse the job any more."""
        open_results(self.folder, self.settings)

    def suites(self, protocol: str, functions: Sequence[Function], progress: Progress) -> Mapping[str, Suite]:
        """The given suites, else those in the folder, what is missing sampled first."""
        if self.given is not None:
            return self.given
        with self.timed(f"sampling, {protocol}"):
            return self._sampled(protocol, functions, progress)

    def _sampled(self, protocol: str, functions: Sequence[Function], progress: Progress) -> Mapping[str, Suite]:
        file = self.folder / f"suites.{protocol}.jsonl"
        k, count = self.job.scoring.k, self.job.scoring.tests_per_suite
        if protocol == published.PROTOCOL:
            replies = {row["task_id"]: row["replies"] for row in read_rows(file)}
            if any(len(replies.get(f.id, ())) < k for f in functions):
                sampler, sampling, context = self._open(), self.job.sampling, self._context()
                replies = ask_in_rounds(sampler, functions, k, sampling, file, context=context, progress=progress)
            return {name: suite_of_replies(name, texts) for name, texts in replies.items()}
        texts = {row["task_id"]: row["suite"] for row in read_rows(file)}
        if any(function.id not in texts for function in functions):
            sampler, sampling, context = self._open(), self.job.sampling, self._context()
            texts = ask_at_once(sampler, functions, count, sampling, file, context=context, progress=progress)
        return {name: suite_of_text(name, text) for name, text in texts.items()}

    def without_suite(self, functions: Sequence[Function]) -> list[str]:
        """The functions that the given file has no suite for: they count as failing."""
        return [f.id for f in functions if f.id not in self.given] if self.given is not None else []

    def _open(self) -> Sampler:
        if self.sampler is None:
            assert self.model is not None
            self._context()
            self.sampler = open_sampler(self.model, self.job.engine)
            self.begin()
            write_atomic(self.folder / "model.json", json.dumps(self.sampler.describe(), indent=2, default=str) + "\n")
        return self.sampler

    def _context(self) -> int:
        """Tokens that a prompt and its reply may have together: what was asked for, within what the model takes."""
        from transformers import AutoConfig

        assert self.model is not None
        config = AutoConfig.from_pretrained(self.model.path)
        longest = int(getattr(config, "max_position_embeddings", None) or self.job.context)
        if longest <= self.job.sampling.max_new_tokens:
            raise UserError(
                f"the model takes {longest} tokens, a reply alone may have {self.job.sampling.max_new_tokens}",
                hint="lower --max-new-tokens",
            )
        return min(self.job.context, longest)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds to the seconds spent on `what`, over all calls that worked on this folder, interrupted ones too; a folder
        that was not begun stays unmade."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self.folder.is_dir():
                file = self.folder / "seconds.json"
                spent = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
                spent[what] = round(spent.get(what, 0.0) + time.monotonic() - began, 3)
                write_atomic(file, json.dumps(spent, indent=2) + "\n")

    def about(self) -> dict[str, Any]:
        """What identifies these results."""
        model = self.folder / "model.json"
        return {
            "label": self.label,
            "folder": str(self.folder),
            "settings": self.settings,
            "model": json.loads(model.read_text(encoding="utf-8")) if model.exists() else None,
            "unknown_suites": self.unknown,
            "versions": {name: _version(name) for name in ("codea1", "cosmic-ray", "coverage")},
        }

    def finish(self, found: dict[str, Any]) -> dict[str, Any]:
        if self.sampler is not None:
            self.sampler.close()
        found |= {"model": self.about()["model"]}
        self.begin()
        spent = self.folder / "seconds.json"
        found["seconds"] = json.loads(spent.read_text(encoding="utf-8")) if spent.exists() else {}
        write_atomic(self.folder / "results.json", json.dumps(found, indent=2) + "\n")
        return found


def _named(model: ModelRef) -> dict[str, Any]:
    """A model by names that hold on another machine as well, where results may be gone on with."""
    return {"label": model.label, "run": Path(model.run).name if model.run else None, "step": model.step}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
