"""What a user sees of a run: a line per step, on a terminal a live one while a step runs, and a closing summary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli.cli import console
from codea1_cli.cli.views import closing_table
from codea1_cli.cli.watch import doing
from codea1_cli.errors import clock, command, counted, some
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.methods.code_a1 import number, percent
from codea1_cli.methods.registry import ROLES, method_of
from codea1_cli.recipe.resources import FEW
from codea1_cli.report.curves import SIGNS
from codea1_cli.runs import gpu_hours, spent

if TYPE_CHECKING:
    from rich.text import Text

    from codea1_cli.engine.ranks import Node
    from codea1_cli.planning.gpu_assignment import Gpu, GpuAssignment
    from codea1_cli.recipe.schema import Recipe
    from codea1_cli.runs.run_dir import RunDir
    from codea1_cli.runs.summary import RunOutcome


class TrainView:
    """Prints to stderr; on a terminal a live line says what is going on."""

    def __init__(
        self, recipe: Recipe, run: RunDir, ranks: dict[str, list[Gpu | None]], hosts: dict[str, list[str]] | None = None
    ) -> None:
        """`hosts`: each rank's node, for a run on a cluster."""
        self.recipe, self.run, self.ranks, self.hosts = recipe, run, ranks, hosts or {}
        self.status: Any = None
        self.busy, self.doing = "starting", dict[str, Any]()  # for the live line: a phase of the run, the last `doing`
        self.started = time.monotonic()
        self.times: list[float] = []
        self.last = 0  # the step at which this call of the command ends
        self.warned: set[str] = set()
        self.failed: dict[str, int] = {}  # of the sandbox, by kind, up to the step before
        self.rewards: list[float] = []
        self.solved: list[tuple[int, float]] = []  # (reward lines seen, pass@1) at each evaluation

    def __enter__(self) -> TrainView:
        console.note(f"run {self.run.name} in {self.run.path}")
        for policy, group in self.ranks.items():
            places = [f"GPU {g.logical} (physical {g.physical}, {g.name})" if g else "CPU" for g in group]
            if policy in self.hosts:
                places = [f"{what} of {host}" for what, host in zip(places, self.hosts[policy], strict=True)]
            console.note(f"{policy} policy {self.recipe.model_of(policy)} on {', '.join(places)}")
        if console.err().is_terminal:
            self.status = console.err().status(self, spinner="dots" if console.unicode() else "line")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def phase(self, text: str) -> None:
        """Says what the run is busy with: in the live line, or as a line with the time since the start."""
        self.busy = text
        if self.status is None:
            console.note(f"{text} ({time.monotonic() - self.started:.0f} s)")

    def __rich__(self) -> Text:
        """The live line."""
        return console.cell(doing(self.doing, time.time(), console.err().width - 3) or self.busy)

    def event(self, event: dict[str, Any]) -> None:
        """Shows an event of the run: its `length`, a `step` or `eval` with its line of metrics.jsonl, a `checkpoint`,
        a `note`, a `warning`, or what the ranks are `doing`."""
        kind = event["kind"]
        if kind == "length":
            self.last = event["last"]
            if self.last < event["total"]:
                with contextlib.suppress(OSError):  # it is for who watches
                    self.run.note(until=self.last)
                self._say(f"  stops after step {self.last} of {event['total']} (--max-steps)")
        elif kind == "doing":
            self.doing = event
        elif kind == "step":
            self.busy = "training"
            self._step(event["line"])
        elif kind == "eval":
            self._evaluation(event["line"])
        elif kind == "checkpoint":
            self._say(f"  saved step {event['step']}")
        elif kind == "note":
            self._say(f"  {event['text']}")
        elif kind == "warning":
            console.warn(console.printable(event["text"]))

    def _say(self, *groups: str) -> None:
        """A line of figures, in groups of those that belong together; a lone text folds between words."""
        from codea1_cli.cli.layout import print_figures

        if len(groups) > 1:
            print_figures(console.err(), groups)
        else:
            console.note(groups[0], style="")

    def _step(self, line: dict[str, Any]) -> None:
        arena = line["arena"]
        self.times.append(time.monotonic())
        recent = self.times[-11:]
        pace = (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else None
        left = f"  {clock(pace * (self.last - line['step']))} left" if pace is not None else ""
        parts = [
            f"step {line['step']:>{len(str(self.last))}}/{self.last}",
            *method_of(self.recipe).step_line(line),
            f"{line['timing']['step_s']:.1f} s{left}",
        ]
        tail, whole = line["timing"].get("judge_tail_s", 0.0), line["timing"]["step_s"]
        if tail > 0.1 * whole:
            parts.insert(-1, f"judge tail {tail:.1f} s")
        if arena.get("unscored"):
            parts.insert(-1, f"unscored {arena['unscored']}")
        failed = arena.get("sandbox_failures") or {}
        if fresh := {
            kind: count - self.failed.get(kind, 0) for kind, count in failed.items() if count > self.failed.get(kind, 0)
        }:
            parts.insert(-1, f"sandbox failures {', '.join(f'{count} {kind}' for kind, count in fresh.items())}")
        self.failed = failed
        self._say(*parts)
        for pid in arena.get("leaving", ()):
            self._say(f"  {pid} leaves the schedule: its reference runs out of time on the calls that suites make")
        if flat := arena.get("leaving_flat"):
            self._say(f"  out of the schedule, as all candidates earn the same (data.leave_flat): {some(flat, 3)}")
        self._watch(arena)
        reward = line.get("code", {}).get("reward")
        if reward is not None:
            self.rewards.append(reward)

    def _watch(self, arena: dict[str, Any]) -> None:
        """Signs of a game that goes wrong without failing, each told once."""
        for name, words in SIGNS.items():
            if (arena.get(name) or 0.0) > 0.5 and name not in self.warned:
                self.warned.add(name)
                console.warn(words)

    def _compare(self, solved: float) -> None:
        """Rewards that rise while held-out problems are solved less often are a warning, not a success."""
        seen = len(self.rewards)
        if self.solved and seen > self.solved[-1][0]:
            before, last = self.solved[-1]
            early = self.rewards[max(0, before - 5) : before] or self.rewards[:1]
            late = self.rewards[-5:]
            if last - solved > 0.02 and sum(late) / len(late) > sum(early) / len(early):
                console.warn(
                    f"the code reward rises, but held-out pass@1 fell from {percent(last)} to {percent(solved)}"
                )
        self.solved.append((seen, solved))

    def _evaluation(self, line: dict[str, Any]) -> None:
        if line["eval"].get("set", "heldout") != "heldout":
            self._benchmark(line["step"], line["eval"])
            return
        code, test = line["eval"].get("code"), line["eval"].get("test")
        parts = [f"held-out at step {line['step']}:"]
        if code:
            best = f"pass@{code['n']}"
            parts.append(f"pass@1 {percent(code['pass@1'])}  {best} {percent(code[best])}")
            if code["pass@1"] is not None and code["problems"] >= FEW:
                self._compare(code["pass@1"])
        if test:
            parts.append(f"validity {percent(test['validity'])}  asserts {number(test['asserts'], 1)}")
        self._say(*parts)
        if test:
            near, soundly = line["eval"]["near_miss"]["exposed"], test["soundly_exposed"]
            rightly = percent(test["stated_correctly"])
            self._say(f"  exposed {percent(test['exposed'])}  near-miss {percent(near)}  soundly {percent(soundly)}")
            self._say(f"  false alarm {percent(test['false_alarm'])}  stated rightly {rightly}")

    def _benchmark(self, step: int, figures: dict[str, Any]) -> None:
        """One line: pass@1 of each set of tests, or what a Test LLM's suites are worth."""
        if benchmark_row(figures["set"]).role == "test":  # in percent already
            names = {"validity": "validity", "right_tests": "right tests", "mutation": "mutation score"}
            found = {words: figures.get(key) for key, words in names.items()}
            shares = {words: None if value is None else value / 100 for words, value in found.items()}
        else:
            shares = {key: figures[key] for key in figures if key.endswith("/pass@1")}
        parts = [f"{figures['set']} at step {step}:", *(f"{words} {percent(value)}" for words, value in shares.items())]
        parts.append(f"({counted(figures['tasks'], 'task')} x {figures['n']}, {figures['scoring_s']:.0f} s)")
        if figures["prompts_too_long"]:
            parts.append(f"{counted(figures['prompts_too_long'], 'prompt')} too long")
        if figures.get("unscored"):
            parts.append(f"{figures['unscored']:.0f} unscored")
        self._say(*parts)

    def finish(self, outcome: RunOutcome) -> None:
        """The closing summary: before and after, the book, where it lies, what to type next."""
        self.__exit__()
        lines = self.run.metrics()
        evaluations = [line for line in lines if set(ROLES) & line.get("eval", {}).keys()]
        steps = [line for line in lines if "arena" in line]
        if len(evaluations) > 1:
            console.err().print(closing_table(self.recipe, evaluations, steps), crop=False)
        few = not evaluations or evaluations[-1]["eval"].get("code", {}).get("problems", 0) < FEW
        if few and (rewards := _rewards(steps)):
            self._say(rewards)
        earned = [line["code"]["reward"] for line in steps if "reward" in line.get("code", {})]
        if earned and not any(earned):
            console.warn("no candidate passed a test in any step: the Code LLM had nothing to learn from")
        saves = self.recipe.checkpoint.every is not None
        word = outcome.state if outcome.state == "finished" or not saves else f"{outcome.state} and saved"
        self._say(f"{word} at step {outcome.step} of {outcome.total} after {clock(time.monotonic() - self.started)}")
        tests, problems = (outcome.summary.get(key, 0) for key in ("book_tests", "book_problems"))
        tested = "test" in method_of(self.recipe).roles and not method_of(self.recipe).pairs
        if tested:
            self._say(f"tests in the Mistake Book: {tests} on {counted(problems, 'problem')}")
        if told := gpu_hours(spent(self.run)):
            self._say(f"GPU hours: {told[0]}")
            for line in told[1:]:
                console.warn(line)
        if best := self.run.best(console.warn):
            self._say(f"best checkpoint: step {best['step']}, {best['figure']} {best['value']:.4g}")
        console.note(console.cell("run: ").append_text(console.cell(self.run.path, whole=True)))
        warmed = self.run.within is not None and outcome.step >= outcome.total
        if warmed and not outcome.interrupted:
            return  # the run that it warms up follows
        if (warmed or outcome.step < outcome.total) and saves:
            words = ("train", *self.run.options, "--resume")
        else:
            words = ("mistakes", "list", *self.run.options) if tested else ("runs", "show", *self.run.options[1:])
        self._say(f"next: {command(*words)}")


def train_shown(
    recipe: Recipe,
    run: RunDir,
    rows: Sequence[Any],
    ranks: GpuAssignment,
    nodes: Sequence[Node],
    resume_step: int,
    max_steps: int | None,
    address: str | None,
) -> RunOutcome:
    """Trains over problems or pairs with a `TrainView`; run.json has what ended it.

    Raises:
        RunFailed, UserError, EnvironmentFault: as `Driver.train`.
    """
    from codea1_cli.engine.driver import Driver
    from codea1_cli.engine.ranks import place
    from codea1_cli.runs.tracking import tracked

    run.note(error=None, stop=None, until=None)
    hosts = {policy: [node.host for node in group] for policy, group in place(ranks, nodes).items()} if nodes else None
    with TrainView(recipe, run, ranks, hosts) as view:
        try:
            with tracked(run, recipe.tracker, view, recipe.faults.tracker_s):
                outcome = Driver(recipe, run, ranks, view, nodes).train(rows, resume_step, max_steps, address)
        except Exception as error:
            with contextlib.suppress(OSError):  # on a full disk, say what the run says
                run.note(error=str(error))
            raise
        if outcome.state == "stopped" or recipe.checkpoint.every is None:
            run.note(stop=outcome.step)
        view.finish(outcome)
    return outcome


def _rewards(steps: Sequence[dict[str, Any]]) -> str:
    """Each side's mean reward in the first and in the last steps; empty where there are no two of them."""
    parts, most = [], min(5, len(steps) // 2)
    for role in ROLES:
        found = [line[role]["reward"] for line in steps if line.get(role, {}).get("reward") is not None]
        if most and len(found) == len(steps):
            early, late = sum(found[:most]) / most, sum(found[-most:]) / most
            parts.append(f"{role} reward from {early:.2f} to {late:.2f}")
    return f"{', '.join(parts)} (means of the first and the last {counted(most, 'step')})" if parts else ""
