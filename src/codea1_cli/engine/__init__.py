"""A run at work: the driver, one actor per rank of each policy, and the arena in which they meet.

The path of a step: the driver calls `policy_worker.train` on each rank, which is TRL's `trainer.train()` and returns at
the end. From there TRL calls back: `methods.rollouts` samples, posts to the arena and waits there for rewards;
`trl.callback` reports, evaluates and saves. The arena makes a step's state (`step_state`) when the first rank posts,
has it judged (`judging.step_judge`), and scores it through the run writer (`run_writer`, `methods`, `game.scoring`).

Here an exception of a Ray actor becomes one error that names side, rank, step and cause.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from codea1_cli.errors import CodeA1Error, EnvironmentFault, RunFailed, command, first_line

if TYPE_CHECKING:  # every command begins with a module of this package
    from codea1_cli.runs.run_dir import RunDir

LOG_HEAD = "--- codea1: a rank starts\n"
"""Where one session's part of a rank's log begins: a resumed run appends."""


def as_error(error: Exception, what: str, position: tuple[str, int] | None, run: RunDir) -> CodeA1Error:
    """The error for the user; ours pass through, everything else becomes a RunFailed with the original's name."""
    from ray import exceptions

    cause: Any = error
    if isinstance(error, exceptions.RayTaskError):
        cause = getattr(error, "cause", None) or error
        cause = getattr(cause, "cause", None) or cause
    at = f" at step {position[1]} ({position[0]})" if position else ""
    hint = resume_hint(run)
    if isinstance(cause, CodeA1Error):
        return type(cause)(cause.what, cause.hint or hint)
    if isinstance(cause, exceptions.RayActorError):
        if isinstance(error, exceptions.RayTaskError):  # the rank lives: the actor that it asked is gone
            return RunFailed(f"the arena died: its process is gone, as {what} found{at}", hint)
        return RunFailed(f"{what} died{at}: its process is gone{_last_words(run, what)}", hint)
    if _disk_full(cause, run):
        return EnvironmentFault(
            f"{what}{at}: the disk is full", hint=f"free some space; {hint}" if hint else "free some space"
        )
    if "out of memory" in str(cause).lower() and ("CUDA" in str(cause) or "OutOfMemory" in type(cause).__name__):
        return RunFailed(
            f"{what} ran out of GPU memory{at}: {first_line(cause)[:200]}",
            hint=f"lower train.tokens_per_micro_batch or sampling.vllm_memory; {hint}",
        )
    if isinstance(error, exceptions.GetTimeoutError):
        return RunFailed(f"{what} does not answer{at}", hint)
    text = (str(cause).strip() or "no message").splitlines()
    name = type(cause).__name__.removeprefix("RayTaskError(").removesuffix(")")
    return RunFailed(
        f"{what} failed{at}: {name}: {text[-1] if 'Traceback' in text[0] or name == 'RayTaskError' else text[0]}", hint
    )


def _disk_full(cause: Any, run: RunDir) -> bool:
    """Whether the disk is full, said by the system, by a library in words, or by torch, which does not say why."""
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    text = str(cause)
    if "No space left on device" in text or "disk is full" in text or "Disk quota exceeded" in text:
        return True
    if "PytorchStreamWriter" not in text and "inline_container" not in text:
        return False
    return shutil.disk_usage(run.path).free < 2**24


def resume_hint(run: RunDir) -> str | None:
    """What to type to go on with a run, and from where that goes on."""
    step = run.latest_step()
    typed = f"`{command('train', *run.options, '--resume')}`"
    if run.exists() and run.recipe().checkpoint.every is None:
        return f"this run saves nothing (checkpoint.every=null); its logs are in {run.logs}"
    if step:
        return f"step {step} is saved: {typed} goes on from there (logs in {run.logs})"
    return f"nothing was saved yet: {typed} starts over (logs in {run.logs})"


def stack_hint(run: RunDir, pid: int | None) -> str:
    """Has a hanging rank write its stacks into its log, and says where."""
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR1)
            time.sleep(0.5)
    return f"its stacks are in {run.logs}; {resume_hint(run)}"


def _last_words(run: RunDir, who: str) -> str:
    """The last line that names an error in a dead rank's log, if any."""
    log = run.logs / f"{who.replace('[', '-').rstrip(']')}.log"
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").rpartition(LOG_HEAD)[2]
        if lines := [line for line in text.splitlines() if re.search(r"error|fatal|killed", line, re.I)]:
            return f"; its log says: {lines[-1].strip()[:200]}"
    return ""
