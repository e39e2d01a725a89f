"""`codea1 export`: a policy of a run as a plain Hugging Face folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption


def export(
    role: Annotated[Literal["code", "test"], typer.Option("--role", help="Which of the two policies.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run's name or folder; the newest run when left out.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="A checkpoint's step; the newest when left out.")
    ] = None,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one policy of a checkpoint as a folder that `from_pretrained` loads; LoRA adapters are merged."""
    from codea1_cli.durable import only_writer
    from codea1_cli.runs.policy_folders import export_policy
    from codea1_cli.runs.run_dir import find_run, runs_root

    chosen = find_run(run, runs_root(runs))
    with only_writer(to, to, wait, "--to"):
        done = export_policy(chosen, role, to, step)
    if as_json:
        console.emit(asdict(done))
        return
    what = "merged adapter" if done.merged_adapter else f"{len(done.files)} files"
    console.note(f"{role} policy of {done.run} at step {done.step}: {what}, {done.bytes / 1e6:.1f} MB")
    console.out().print(done.to, markup=False, soft_wrap=True)
