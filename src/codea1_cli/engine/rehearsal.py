"""What a run would otherwise do for the first time when it saves, done before the first step on something small."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codea1_cli.errors import CodeA1Error, EnvironmentFault, RunFailed, UserError, first_line
from codea1_cli.models.loading import render
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.runs.run_dir import RunDir

_WHOLE = 64 * 2**20
"""Bytes of weights up to which they are written too."""


def rehearse_commit(run: RunDir) -> None:
    """Commits a small checkpoint below the run's folder, points links at it, and deletes it.

    Raises:
        EnvironmentFault: the file system cannot do it (locks, links, renaming, flushing to disk).
    """
    place = run.path / "checkpoints" / ".rehearsal"
    try:
        shutil.rmtree(place, ignore_errors=True)
        small = RunDir(place)
        small.create()
        for step in (1, 2):
            small.pending.mkdir()
            (small.pending / "state.json").write_text("{}", encoding="utf-8")
            small.commit(step)
        small.append_metrics({"step": 2})
        if small.prune(1) != [1] or small.latest_step() != 2 or small.metrics() != [{"step": 2}]:
            raise EnvironmentFault(f"a checkpoint written below {run.path} does not read back as it was written")
        shutil.rmtree(place)
    except CodeA1Error:
        raise
    except OSError as error:
        raise EnvironmentFault(
            f"no checkpoint can be written below {run.path}: {error.strerror or first_line(error)}",
            hint="choose another file system for the runs with --runs DIR or CODEA1_RUNS",
        ) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def rehearse_prompts(tokenizer: Any, problem: Problem, tests_per_suite: int) -> None:
    """Renders each kind of prompt that a run asks: for a program, for tests of one, for tests without one.

    Raises:
        UserError: the chat template fails at one.
    """
    asked = {
        "the Code LLM's": code_messages(problem),
        "the Test LLM's": test_messages(problem, problem.declaration, tests_per_suite),
        "the Test LLM's, without a program,": test_messages(problem, None, tests_per_suite),
    }
    for whose, chat in asked.items():
        try:
            prompt = render(tokenizer, chat)
        except Exception as error:
            raise UserError(f"{whose} prompt cannot be rendered: {type(error).__name__}: {first_line(error)}") from None
        if not prompt:
            raise UserError(f"{whose} prompt has no tokens", hint="mend the chat template, or take another model")


def rehearse_save(trainer: Any, folder: Path, who: str) -> None:
    """Writes what a checkpoint writes of a policy and reads it back; weights beyond 64 MiB are left out.

    Under FSDP2 only what is no weight: a save gathers them from all ranks.

    Raises:
        RunFailed: something cannot be saved, or not be read back.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    if not trainer.args.should_save:
        return
    tokenizer, model = trainer.processing_class, trainer.model
    shutil.rmtree(folder, ignore_errors=True)
    doing = "saved"
    try:
        if trainer.is_fsdp_enabled:
            model.config.save_pretrained(folder)
            model.generation_config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        else:
            with _small_weights(model):
                trainer.save_model(str(folder))
        trainer.state.save_to_json(str(folder / "trainer_state.json"))
        doing = "read back"
        json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        if (folder / "config.json").is_file():
            AutoConfig.from_pretrained(folder)
            GenerationConfig.from_pretrained(folder)
        else:
            from peft import PeftConfig

            PeftConfig.from_pretrained(str(folder))
        again = AutoTokenizer.from_pretrained(folder)
        if again.chat_template != tokenizer.chat_template or again.eos_token_id != tokenizer.eos_token_id:
            raise ValueError("the tokenizer's chat template or end token does not survive it")
    except Exception as error:
        raise RunFailed(
            f"{who}: before the first step: the policy cannot be {doing}: {type(error).__name__}: {first_line(error)}",
            hint="a checkpoint would fail the same way: mend the model's folder (its config.json, tokenizer files)",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _small_weights(model: Any) -> Iterator[None]:
    """While a model is saved: files of weights that would take long are begun and not filled."""
    from transformers import modeling_utils

    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if size <= _WHOLE:
        yield
        return

    def begin(tensors: Any, filename: Any, metadata: Any = None) -> None:
        Path(filename).write_bytes(b"")

    with patch.object(modeling_utils, "safe_save_file", begin):
        yield
