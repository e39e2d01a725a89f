"""One evaluation from start to end: references, sampling, scoring, figures."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from codea1_cli.environment import cores
from codea1_cli.evals import statistics
from codea1_cli.evals.benchmark import CodeBenchmark, CodeTask, ReferenceReport, Sample, Scored, ScoreOptions, Status
from codea1_cli.evals.results import FORMAT, keep_origin, read_origin, references_record, verdict_rows
from codea1_cli.evals.samples import SampleFile, read_samples
from codea1_cli.models.sampler import REPLIES, ModelRef, Sampler, SamplingSettings, open_sampler, speed
from codea1_cli.problems.prompts import known_names, real_reply

BATCH = 2048  # sequences between two writes where the engine makes its own batches
Told = Callable[[str, int, int], None]


def sample_tasks(
    benchmark: CodeBenchmark,
    tasks: Sequence[CodeTask],
    sampler: Sampler,
    settings: SamplingSettings,
    style: str,
    file: SampleFile,
    progress: Told,
) -> list[Sample]:
    """Samples what the file lacks, and returns all of it in the tasks' order. A task is whole in the file or not there:
    interrupted, at most a chunk of prompts is sampled again."""
    left = [task for task in tasks if file.counts[task.id] < settings.n]
    chunk = max(1, 2 * getattr(sampler, "batch", BATCH) // settings.n)
    done = len(tasks) - len(left)
    progress("sampling", done, len(tasks))
    prompts = benchmark.prompts(left, sampler.tokenizer, style)
    settings = replace(settings, stop=benchmark.stop(style))  # which may depend on the tokenizer that was just seen
    # Prompts of like length share a batch.
    order = sorted(range(len(left)), key=lambda i: -len(prompts[i]))
    for start in range(0, len(order), chunk):
        part = order[start : start + chunk]
        texts = sampler.generate([prompts[i] for i in part], settings)
        for i, replies in zip(part, texts, strict=True):
            real = [real_reply(text, left[i].entry_point, known_names(sampler.tokenizer)) for text in replies]
            made = [benchmark.sample(left[i], text, number, style) for number, text in enumerate(real)]
            file.append(made[file.counts[left[i].id] :])
        done += len(part)
        progress("sampling", done, len(tasks))
    place = {task.id: number for number, task in enumerate(tasks)}
    return sorted(read_samples(file.path, benchmark, tasks), key=lambda s: (place[s.task_id], s.number))


def sampled(
    benchmark: CodeBenchmark,
    tasks: list[CodeTask],
    ref: ModelRef,
    settings: SamplingSettings,
    style: str,
    engine: str,
    file: Path,
    progress: Told,
    note: Callable[[str], None],
) -> tuple[list[Sample], dict[str, Any]]:
    """The samples of these tasks, sampled as far as `file` lacks them, and what a result says of their making."""
    kept = {key: value for key, value in asdict(settings).items() if key != "stop"}
    kept |= {**ref.identity(), "style": style, "data": benchmark.data_hash()}
    target = SampleFile(file, kept)
    about: dict[str, Any] = {"label": ref.label, "style": style, "sampling": asdict(settings), "seconds_sampling": 0.0}
    if all(target.counts[task.id] >= settings.n for task in tasks):
        note(f"all samples are there: {file}")
        about["model"] = {"model": ref.path, "label": ref.label}
        return read_samples(file, benchmark, tasks), {**about, **read_origin(file)}
    replies = file.with_name(file.name.removesuffix(".jsonl") + REPLIES)
    with closing(open_sampler(ref, engine, replies)) as sampler:
        began = time.monotonic()
        made = sample_tasks(benchmark, tasks, sampler, settings, style, target, progress)
        about["seconds_sampling"] = time.monotonic() - began
        about |= {"model": sampler.describe(), **speed(sampler.tokens, sampler.seconds, **sampler.spent)}
    keep_origin(file, about)
    replies.unlink(missing_ok=True)
    return made, about


@dataclass
class Evaluation:
    """What came of scoring: `rows` by task id (`statistics.task_rows`), `figures` by the benchmark's columns."""

    references: ReferenceReport
    scored: list[Scored]
    seconds: float
    reference_seconds: float
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)


def score_samples(
    benchmark: CodeBenchmark, samples: Sequence[Sample], options: ScoreOptions, progress: Told
) -> Evaluation:
    """References first, then the samples. Tasks without a sample are in no figure."""
    began = time.monotonic()
    asked = {sample.task_id for sample in samples}
    references = benchmark.check_references(options, lambda done, total: progress("references", done, total), asked)
    middle = time.monotonic()
    scored = benchmark.score(samples, options, lambda done, total: progress("scoring", done, total))
    evaluation = Evaluation(references, scored, time.monotonic() - middle, middle - began)
    evaluation.rows = statistics.task_rows(scored, benchmark.columns)
    evaluation.figures = statistics.figures(evaluation.rows, benchmark.columns, references)
    return evaluation


def record(
    benchmark: CodeBenchmark, evaluation: Evaluation, options: ScoreOptions, about: dict[str, Any], samples: Path | None
) -> dict[str, Any]:
    """The content of a result file; `about` says what made the samples."""
    from codea1_cli import __version__

    return {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "columns": list(benchmark.columns),
        "codea1": __version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "data_hash": benchmark.data_hash(),
        "samples_file": str(samples) if samples is not None else None,
        **about,
        "figures": evaluation.figures,
        "unscored": sum(Status.UNSCORED in one.verdicts.values() for one in evaluation.scored),
        "references": references_record(evaluation.references),
        "seconds": {"references": evaluation.reference_seconds, "scoring": evaluation.seconds},
        "options": {k: v for k, v in asdict(options).items() if k in ("workers", "python")},
        "machine": {"python": platform.python_version(), "platform": platform.platform(), "cores": cores()},
        "tasks": evaluation.rows,
        "verdicts": verdict_rows(evaluation.scored),
    }


def score_texts(
    benchmark: CodeBenchmark,
    texts: dict[str, Sequence[str]],
    tasks: Sequence[CodeTask],
    *,
    style: str,
    options: ScoreOptions,
) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """Scores sampled texts, by task id, as training does between its steps.

    `benchmark` is kept between calls with its loaded `tasks`, so that the references run once. Returns the figures as
    one level (`plus/pass@1`, `plus/avg@32`) for metrics.jsonl, and the rows by task.
    """
    by_id = {task.id: task for task in tasks}
    samples = [
        benchmark.sample(by_id[task], text, number, style)
        for task, replies in texts.items()
        for number, text in enumerate(replies)
    ]
    evaluation = score_samples(benchmark, samples, options, lambda *_: None)
    unscored = sum(Status.UNSCORED in one.verdicts.values() for one in evaluation.scored)
    told = {"references": evaluation.references.rate, "unscored": float(unscored)}
    return statistics.flat(evaluation.figures) | told, evaluation.rows
