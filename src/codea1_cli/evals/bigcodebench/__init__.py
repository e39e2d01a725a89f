"""BigCodeBench as `codea1 eval-code` sees it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import CodeTask, Progress, ReferenceReport, Sample, Scored, ScoreOptions, Status
from codea1_cli.evals.bigcodebench.environment import environment_key, missing_libraries, open_sandbox, python_for
from codea1_cli.evals.bigcodebench.scoring import (
    FAILS,
    Job,
    ReferenceResult,
    ScoreSettings,
    cache_name,
    check_references,
    score_all,
)
from codea1_cli.evals.bigcodebench.tasks import (
    BASE_STOPS,
    CHAT_STOPS,
    SPLITS,
    BigCodeTask,
    load_tasks,
    prompt_text,
    public_task,
    user_turn,
)
from codea1_cli.evals.samples import sanitize_bigcodebench
from codea1_cli.problems.benchmark_files import PublicTask


class BigCodeBenchmark:
    """The full set (1,140 tasks) or its hard part (148). Styles are the splits: complete, as published, and instruct.

    `n`, `temperature`, `top_p` and `max_new_tokens` are the published protocol's.
    """

    columns: tuple[str, ...] = ("tests",)
    styles: tuple[str, ...] = SPLITS
    n, temperature, top_p, max_new_tokens = 32, 0.7, 0.95, 2048

    def __init__(self, hard: bool = False, settings: ScoreSettings | None = None) -> None:
        self.subset = "hard" if hard else "full"
        self.name = "bigcodebench-hard" if hard else "bigcodebench"
        self.title = "BigCodeBench-Hard" if hard else "BigCodeBench"
        self.settings = settings or ScoreSettings()
        self.tasks: dict[str, BigCodeTask] = {}  # the loaded ones by id
        self._digest = ""
        self._references: dict[str, ReferenceResult] = {}
        self._sandbox: Any = None
        self._plain = self._whole = False

    def load(self, data: Path | None) -> list[CodeTask]:
        """The subset's tasks. Raises UserError."""
        loaded = load_tasks(data, self.subset)
        self.tasks, self._digest = {task.task_id: task for task in loaded.tasks}, loaded.digest
        return [CodeTask(t.task_id, t.entry_point, t.complete_prompt, t.reference, t) for t in loaded.tasks]

    def public_task(self, row: Mapping[str, Any]) -> PublicTask:
        """A published row as training data is compared with it."""
        return public_task(row)

    def data_hash(self) -> str:
        """The hash of the loaded tasks."""
        return self._digest

    def prompts(self, tasks: Sequence[CodeTask], tokenizer: Any, style: str) -> list[list[Any]]:
        """Token ids of each task's prompt: the chat template's text as it stands, or a base model's own prompt. For a
        server (no tokenizer) the user's turn alone.

        Raises:
            UserError: the instruct split with a model that has no chat template.
        """
        self._whole = tokenizer is None
        if self._whole:
            return [[{"role": "user", "content": user_turn(task.data, style)}] for task in tasks]
        chat = getattr(tokenizer, "chat_template", None) is not None
        self._plain = not chat
        try:
            texts = [prompt_text(task.data, tokenizer, style) for task in tasks]
        except ValueError as fault:
            raise UserError(str(fault), hint="use the complete split") from None
        return [list(tokenizer(text, add_special_tokens=not chat)["input_ids"]) for text in texts]

    def stop(self, style: str) -> tuple[str, ...]:
        """Where a sample ends; `prompts` has to come first, since it depends on whether the model chats."""
        return () if self._whole else BASE_STOPS if self._plain else CHAT_STOPS

    def sample(self, task: CodeTask, text: str, number: int, style: str) -> Sample:
        """A sampled text as a sample; a base model's text continues the prompt."""
        raw = text.replace("\t", "    ")
        raw = task.prompt + raw if self._plain else raw
        return Sample(task.id, self.sanitize(task, raw), raw, number)

    def read(self, row: dict[str, Any], task: CodeTask, number: int) -> Sample:
        """A row of a sample file: `solution`, or `completion` behind the prompt. Raises UserError."""
        solution = row.get("solution")
        if solution is None and isinstance(row.get("completion"), str):
            solution = task.prompt + row["completion"]
        if not isinstance(solution, str):
            raise UserError(f"{task.id}: neither solution nor completion", hint="each must be one text")
        return Sample(task.id, solution, str(row.get("raw_solution") or ""), number)

    def sanitize(self, task: CodeTask, raw: str) -> str:
        """The program in a raw solution."""
        return sanitize_bigcodebench(raw, task.entry_point)

    def missing(self, tasks: Sequence[CodeTask], options: ScoreOptions) -> dict[str, int]:
        """The libraries that tasks name and the interpreter lacks, with the tasks of each, most first. Of a service
        nothing is known."""
        if not options.on_this_machine:
            return {}
        named = [{name.partition(".")[0] for name in task.data.libs} - sys.stdlib_module_names for task in tasks]
        counts = Counter(name for names in named for name in sorted(names))
        lacking = missing_libraries(python_for(options.python), counts)
        return {name: count for name, count in counts.most_common() if name in lacking}

    def check_references(
        self, options: ScoreOptions, progress: Progress, ids: Collection[str] | None = None
    ) -> ReferenceReport:
        """Runs these tasks' references, or reads what a check with the same data and libraries found."""
        tasks = [task for task in self.tasks.values() if ids is None or task.task_id in ids]
        sandbox = self._open(options)
        cache = None
        if options.cache is not None and options.on_this_machine:  # a service's packages may change unseen
            options.cache.mkdir(parents=True, exist_ok=True)
            key = environment_key(python_for(options.python))
            cache = options.cache / cache_name(self.data_hash(), key, self.settings)
        done: set[str] = set()

        def tick(result: ReferenceResult) -> None:
            done.add(result.task_id)
            progress(len(done), len(tasks))

        self._references = check_references(sandbox, tasks, self.settings, cache, tick)
        progress(len(tasks), len(tasks))
        failing = {t.task_id: t.detail for t in self._references.values() if t.state == FAILS}
        missing = {
            t.task_id: f"{t.state}: {t.detail}" for t in self._references.values() if not t.runs and t.state != FAILS
        }
        lacking = Counter(result.lacks for result in self._references.values() if result.task_id in missing)
        return ReferenceReport(len(tasks), failing, missing, dict(lacking.most_common()))

    def score(self, samples: Sequence[Sample], options: ScoreOptions, progress: Progress) -> list[Scored]:
        """Verdicts in the samples' order; `check_references` has to come first."""
        sandbox = self._open(options)
        found: dict[int, Scored] = {}
        jobs: list[tuple[int, Job]] = []
        for at, sample in enumerate(samples):
            result = self._references.get(sample.task_id)
            if result is not None and not result.runs and result.state != FAILS:
                found[at] = self._scored(sample, Status.NOT_RUN, result.state, 0.0)
                continue
            seconds, skipped = (result.seconds, frozenset(result.skipped)) if result else (0.0, frozenset())
            jobs.append((at, (self.tasks[sample.task_id], sample.solution, seconds, skipped)))
        for at, scored in score_all(sandbox, jobs, self.settings):
            found[at] = self._scored(samples[at], scored.status, scored.detail, scored.seconds)
            progress(len(found), len(samples))
        return [found[at] for at in range(len(samples))]

    def _scored(self, sample: Sample, status: Status, detail: str, seconds: float) -> Scored:
        return Scored(sample.task_id, sample.number, {self.columns[0]: status}, detail, seconds)

    def _open(self, options: ScoreOptions) -> Any:
        if self._sandbox is None:
            self._sandbox = open_sandbox(options)
        return self._sandbox

    def close(self) -> None:
        """Ends the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
