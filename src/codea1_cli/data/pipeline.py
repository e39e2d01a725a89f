"""From a source to the rows worth keeping, stage by stage; each stage's outcome is on disk and is used again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path

from codea1_cli.data import Card, Stage, WorkFolder
from codea1_cli.data.decontaminate import Decontaminator, exact_duplicates, near_duplicates
from codea1_cli.data.folder import WORK, check_out, new_card, write_folder
from codea1_cli.data.sources import Source
from codea1_cli.data.stages import Line, Prepared, ProblemSampler, Progress, PromptCounter, Stages, digest, solve_rate
from codea1_cli.errors import counted
from codea1_cli.models import Server
from codea1_cli.models.sampler import REPLIES, ModelRef
from codea1_cli.problems.benchmark_files import PublicTask
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.data_options import Options
from codea1_cli.sandbox.base import in_order


def prepare(
    source: Source,
    options: Options,
    out: Path,
    command: str,
    progress: Progress,
    tasks: Sequence[PublicTask] = (),
    notes: Sequence[str] = (),
    wait: bool = False,
    server: Server | None = None,
) -> tuple[Card, Prepared]:
    """Makes a folder of training data, or goes on with it; `command` and `notes` are for its data card. `server` is
    where the model of `options.solve` is; None: it is loaded here.

    Raises:
        UserError: as `check_out`, `WorkFolder.locked`, `Pipeline.run` and `write_folder`.
        EnvironmentFault: as `Pipeline.run`.
    """
    check_out(out)
    with WorkFolder(out / WORK).locked(wait) as work:
        pipeline = Pipeline(source, options, work, progress, tasks, server)
        card = new_card(source.title, command, options, pipeline.identity)
        prepared = pipeline.run()
        card.notes = list(notes)
        if prepared.unscored:
            failed = counted(prepared.unscored, "row")
            card.notes.append(f"The sandbox failed on {failed}; the same command tries again.")
        write_folder(prepared, card, options, work)
    return card, prepared


SOLVE_BATCH = 128  # problems sampled together, enough to fill a GPU; fixed, since samples depend on it


class Pipeline(Stages):
    """Runs the stages of one preparation inside a locked work folder; `tasks` are the benchmarks'."""

    def __init__(
        self,
        source: Source,
        options: Options,
        work: WorkFolder,
        progress: Progress,
        tasks: Sequence[PublicTask] = (),
        server: Server | None = None,
    ) -> None:
        super().__init__(source, options, work, progress)
        self.tasks, self.server = tasks, server

    def run(self) -> Prepared:
        """All stages; what an interrupted run has done already is not done again.

        Raises:
            UserError: the source, a tokenizer, a model or the benchmarks cannot be read.
            EnvironmentFault: the sandbox or the hub fails.
        """
        o = self.options
        try:
            self.out = Prepared(self.read())
            if self.tasks:
                self._decontaminate(self.tasks)
            self.each("filter", {"min_tests": o.min_tests}, self._filter)
            if o.dedup:
                self._duplicates()
            if o.tokenizer is not None:
                self._tokens(o.tokenizer)
            if o.verify:
                self._verify()
            if o.dedup:
                self._near()
            if o.solve is not None:
                self._solve()
            return self.out
        finally:
            if self._sandbox is not None:
                self._sandbox.close()

    def _filter(self, problem: Problem) -> Line:
        count = len(problem.tests)
        if count < self.options.min_tests:
            left = problem.meta.get("tests_left_out", {})
            why = ", ".join(f"{reason}: {n}" for reason, n in left.items())
            detail = f"{count} of {self.options.min_tests}" + (f" ({why})" if why else "")
            return {"reason": "too_few_tests", "detail": detail}
        return {}

    def _decontaminate(self, tasks: Sequence[PublicTask]) -> None:
        self.out.benchmarks = dict(Counter(task.benchmark for task in tasks))
        limits = asdict(self.options.thresholds)
        settings = {name: value for name, value in limits.items() if name.startswith("bench_")}
        settings["tasks"] = digest(*(vars(task) for task in tasks))
        index = Decontaminator(tasks, self.options.thresholds)

        def judge(problem: Problem) -> Line:
            hit = index.collision(problem)
            if hit is None:
                return {}
            score = {} if hit.score is None else {"score": hit.score}
            detail = {"detail": hit.detail} if hit.detail else {}
            return {"reason": hit.reason, "other": hit.other, "other_text": hit.text, **score, **detail}

        self.each("benchmarks", settings, judge)

    def _tokens(self, tokenizer: str) -> None:
        o = self.options
        counter = PromptCounter(tokenizer, o.chat_template)
        template = hashlib.sha256(str(counter.tokenizer.chat_template).encode()).hexdigest()
        most = o.max_prompt_tokens

        def judge(problem: Problem) -> Line:
            count = counter.count(problem)
            if most is not None and count > most:
                return {"tokens": count, "reason": "prompt_too_long", "detail": f"{count} tokens, limit {most}"}
            return {"tokens": count}

        stage = self.each("tokens", {"tokenizer": tokenizer, "template": template, "most": most}, judge)
        self.out.tokens = {line["row"]: line["tokens"] for line in stage}

    def _verify(self) -> None:
        from codea1_cli.data.verify import Verifier

        o = self.options

        verifier = Verifier(self.sandbox(), self.limits())
        verifier.warm(self.workers())

        def judge(problem: Problem) -> Line:
            checked = verifier.check(problem)
            line: Line = {"seconds": checked.seconds}
            if checked.reason is not None:
                return {**line, "reason": checked.reason, "detail": checked.detail}
            if checked.extra_tests != problem.extra_tests:
                line |= {"extra_tests": checked.extra_tests, "dropped": checked.dropped}
            return line

        settings = {"time": o.time_limit_s, "memory": o.memory_mb, "python": o.python}
        stage = self.each("verify", settings, judge, workers=self.workers())
        self.out.verify_stage = stage
        for place, line in enumerate(stage):
            if not self.out.rows.alive[line["row"]]:
                continue
            if "extra_tests" in line:
                self.out.extra[line["row"]] = place
                self.out.extra_dropped += line["dropped"]
            if line["seconds"] >= o.slow_s:
                self.out.slow.append((line["row"], line["seconds"]))
        self.out.slow.sort()

    # -- stages that compare rows, or sample many together -----------------------------------------------------------
    def _duplicates(self) -> None:
        stage = self.work.stage("duplicates", self.key_of_living("duplicates"), resumable=False)
        contaminated = [line["row"] for line in self.out.removed.get("benchmarks", [])]
        self._found(stage, exact_duplicates(self.out.rows, contaminated))

    def _near(self) -> None:
        limits = self.options.thresholds
        key = self.key_of_living("near", limits.near_question, limits.near_code)
        stage = self.work.stage("near", key, resumable=False)
        self._found(stage, near_duplicates(self.out.rows, limits))

    def _found(self, stage: Stage, pairs: Iterator[tuple[int, str, int, float | None]]) -> None:
        total = self.out.rows.count()
        if not stage.done:
            with closing(stage):
                for row, reason, other, score in pairs:
                    line: Line = {"row": row, "reason": reason, "other": other}
                    stage.append(line if score is None else {**line, "score": score})
            stage.finish()
        self.progress(stage.name, total, total)
        self.remove(stage.name, stage)

    def _solve(self) -> None:
        rule, seed = self.options.solve, self.options.seed
        assert rule is not None
        ref = ModelRef(rule.model, label=rule.model, server=self.server) if self.server else None
        where = [SOLVE_BATCH, *([ref.identity()] if ref else [])]
        key = self.key_of_living("solve", seed, rule.model, rule.n, rule.temperature, rule.max_new_tokens, *where)
        stage = self.work.stage("solve", key, resumable=True)
        total = self.out.rows.count()
        if not stage.done:
            kept = self.work.folder / f"solve{REPLIES}"
            sampler, rate = ProblemSampler(rule, ref=ref, kept=kept), partial(solve_rate, self.sandbox(), self.limits())
            living = self.out.rows.living()
            with closing(stage):
                for first in range(0, total, SOLVE_BATCH):
                    batch = list(islice(living, SOLVE_BATCH))
                    if first + len(batch) <= len(stage):
                        continue
                    replies = sampler.sample([problem for _, problem in batch], seed + first)
                    jobs = [(number, problem, texts) for (number, problem), texts in zip(batch, replies, strict=True)]
                    # Closed before the sandbox is: a program still at work there must have ended.
                    with closing(in_order(lambda job: rate(job[1], job[2]), jobs, self.workers())) as judged:
                        for (number, _, _), found in islice(judged, max(0, len(stage) - first), None):
                            stage.append({"row": number, "rate": found.rate, "scored": found.scored})
                            self.progress("solve", len(stage), total)
            stage.finish()
            kept.unlink(missing_ok=True)
        self.out.rates = {line["row"]: line["rate"] for line in stage if line["rate"] is not None}
        gone: list[Line] = []
        for line in stage:
            rate = line["rate"]
            if rate is None or not rule.low <= rate <= rule.high:
                reason = "no_solve_rate" if rate is None else "too_hard" if rate < rule.low else "too_easy"
                gone.append({"row": line["row"], "reason": reason, "detail": f"solve rate {rate} of {line['scored']}"})
        self.remove("solve", stage, gone)
