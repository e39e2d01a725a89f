"""The one door to the sandbox backends: a backend is a row of `BACKENDS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codea1_cli.environment import cores
from codea1_cli.sandbox.base import Sandbox, SandboxEnvironment

if TYPE_CHECKING:
    from codea1_cli.sandbox.local import LocalSandbox


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """Which sandbox is wanted.

    backend: a key of `BACKENDS`; the fields `backend`, `endpoint`, `python` and `require` are those of a recipe's
    `sandbox` section. endpoint: the address of a sandbox-fusion service. workers: programs at once per machine; None:
    one per CPU (8 requests for a service). The rest concerns the local backend. python: the candidates' interpreter.
    require: layers whose absence is an error. warm: modules that every worker imports beforehand. environment: what
    programs find around them. spread: run on every node of the Ray cluster that this process is connected to.
    """

    backend: str = "local"
    endpoint: str | None = None
    python: str | None = None
    require: Sequence[str] = ()
    workers: int | None = None
    warm: Sequence[str] = ("numpy",)
    environment: SandboxEnvironment = field(default_factory=SandboxEnvironment)
    spread: bool = False


def make_sandbox(options: SandboxOptions) -> Sandbox:
    """The backend that `options` name, started.

    Raises:
        EnvironmentFault: it does not start, or lacks a required layer.
        UserError: a required layer does not exist.
    """
    return BACKENDS[options.backend](options)


def make_local(options: SandboxOptions) -> LocalSandbox:
    """The local backend of this machine alone, for callers that use what only it has: layers, unittest modules.

    Raises:
        EnvironmentFault, UserError: as `make_sandbox`.
    """
    from codea1_cli.sandbox.local import LocalSandbox

    return LocalSandbox(
        options.workers or cores(),
        python=options.python,
        require=options.require,
        warm=options.warm,
        environment=options.environment,
    )


def _local_or_cluster(options: SandboxOptions) -> Sandbox:
    if not options.spread:
        return make_local(options)
    from codea1_cli.sandbox.cluster import ClusterSandbox

    return ClusterSandbox(options)


def _fusion(options: SandboxOptions) -> Sandbox:
    from codea1_cli.sandbox.fusion import FusionSandbox

    return FusionSandbox(options.endpoint, options.workers or 8)


BACKENDS: dict[str, Callable[[SandboxOptions], Sandbox]] = {"local": _local_or_cluster, "fusion": _fusion}
