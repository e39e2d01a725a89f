"""The sandbox that a recipe asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from codea1_cli.sandbox.base import Sandbox

if TYPE_CHECKING:
    from codea1_cli.recipe.schema import SandboxSection


def make_sandbox(section: SandboxSection, workers: int | None, *, spread: bool = False) -> Sandbox:
    """The backend of `sandbox.backend`.

    workers: programs at once on a machine; None: one a CPU. spread: judge on every node of the Ray cluster that this
    process is connected to.

    Raises:
        EnvironmentFault: it does not start, or lacks a required layer.
    """
    if section.backend == "local" and spread:
        from codea1_cli.sandbox.cluster import SpreadSandbox

        return SpreadSandbox(section, workers)
    if section.backend == "local":
        from codea1_cli.sandbox.local.pool import LocalSandbox

        return LocalSandbox(workers=workers or os.cpu_count() or 1, python=section.python, require=section.require)
    from codea1_cli.sandbox.fusion import FusionSandbox

    return FusionSandbox(section.endpoint, workers or 8)
