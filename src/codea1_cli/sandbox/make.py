"""The sandbox that a recipe asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codea1_cli.errors import UserError
from codea1_cli.sandbox.base import Sandbox

if TYPE_CHECKING:
    from codea1_cli.recipe import SandboxSection


def make_sandbox(section: SandboxSection, workers: int) -> Sandbox:
    """The backend of `sandbox.backend`, for `workers` programs at once.

    Raises:
        EnvironmentFault: it does not start, or lacks a required layer.
    """
    if section.backend == "local":
        from codea1_cli.sandbox.local.pool import LocalSandbox

        return LocalSandbox(workers=workers, python=section.python, require=section.require)
    raise UserError(f"sandbox.backend={section.backend} is not available yet", hint="use sandbox.backend=local")
