"""The references first: which tasks this machine can run, how long they take, which tests they skip.

A task whose reference does not pass here says nothing about a model: it cannot be run here, which is never a failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from codea1_cli.evals.bigcodebench.scoring import BigCodeVerdict, Scored, ScoreSettings, UnitSandbox, score_all
from codea1_cli.evals.bigcodebench.tasks import BigCodeTask

RUNS, MISSING, CORPUS, NETWORK, FAILS, UNSCORED = (
    "runs", "missing library", "missing corpus", "needs the network", "reference fails", "unscored"
)  # fmt: skip
_NETWORK = re.compile(
    r"name resolution|NameResolutionError|Max retries exceeded|Network is unreachable|gaierror|urlopen error"
    r"|Failed to (?:connect|resolve)|Name or service not known|nodename nor servname"
)
_CORPUS = re.compile(r"nltk\.download|NLTK Downloader|MissingCorpusError|nltk_data")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'|TesseractNotFoundError")


@dataclass(frozen=True)
class ReferenceResult:
    """One reference: `state` is `RUNS` or why not, `detail` its words."""

    task_id: str
    state: str
    detail: str
    seconds: float
    skipped: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether the task can be run here."""
        return self.state == RUNS


def classify(scored: Scored) -> ReferenceResult:
    """From the reference's own verdict to what it says about the machine."""
    state = RUNS
    if scored.verdict is BigCodeVerdict.UNSCORED:
        state = UNSCORED
    elif scored.verdict is not BigCodeVerdict.PASS:
        state = next(
            (
                s
                for s, pattern in ((MISSING, _MODULE), (CORPUS, _CORPUS), (NETWORK, _NETWORK))
                if pattern.search(scored.detail)
            ),
            FAILS,
        )
    return ReferenceResult(scored.task_id, state, scored.detail[:300], scored.seconds, scored.skipped)


def check_references(
    sandbox: UnitSandbox,
    tasks: Iterable[BigCodeTask],
    settings: ScoreSettings,
    cache: Path | None = None,
    tick: Callable[[ReferenceResult], None] = lambda _result: None,
) -> dict[str, ReferenceResult]:
    """What each task's reference comes to, by task id.

    A reference may skip any test; one that fails is run once more, since some references depend on chance. `cache` is a
    jsonl file that keeps results: an interrupted check goes on, a later one is free. Its name should carry what the
    results depend on (`cache_name`).
    """
    tasks = list(tasks)
    wanted = {task.task_id for task in tasks}
    results = {t.task_id: t for t in _read(cache) if t.task_id in wanted} if cache else {}
    for known in results.values():
        tick(known)
    for _attempt in range(2):
        jobs = [
            (task, (task, task.reference, 0.0, frozenset(task.names)))
            for task in tasks
            if task.task_id not in results or (results[task.task_id].state in (FAILS, UNSCORED) and _attempt)
        ]
        for task, scored in score_all(sandbox, jobs, settings):
            result = classify(scored)
            if _attempt and not result.runs:
                continue
            results[task.task_id] = result
            if cache and result.state != UNSCORED:
                with cache.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            tick(result)
    return results


def cache_name(digest: str, python: str, settings: ScoreSettings) -> str:
    """A file name for a check of these tasks by this interpreter."""
    import hashlib

    key = f"{digest} {python} {settings.calibrated} {settings.time_limit_s} {settings.memory_mb}"
    return f"bigcode-truth-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"


def _read(cache: Path) -> list[ReferenceResult]:
    found = []
    if cache.is_file():
        for line in cache.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                found.append(ReferenceResult(**{**row, "skipped": tuple(row["skipped"])}))
            except (ValueError, TypeError, KeyError):
                continue  # a line that an interrupted run did not finish
    return found
