"""The one door to the sandbox backends: a backend is a row of `BACKENDS`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from codea1_cli.environment import cores, demand_linux
from codea1_cli.errors import UserError, did_you_mean
from codea1_cli.network import check_address
from codea1_cli.sandbox.base import LAYERS, Sandbox, SandboxEnvironment, check_layers

if TYPE_CHECKING:
    from codea1_cli.sandbox.local import LocalSandbox

ENDPOINT = "SANDBOX_FUSION_ENDPOINT"


class SandboxSection(BaseModel):
    """The recipe's section `sandbox`."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    backend: str = Field("local", description="where programs run: `local`, this machine; `fusion`, a service")
    endpoint: str | None = Field(None, description="the service's address; null: SANDBOX_FUSION_ENDPOINT")
    patience_s: Annotated[float, Field(ge=0.0)] = Field(
        60.0, description="how long an outage of the service is waited for; one that lasts longer ends the run"
    )
    python: str | None = Field(None, description="the candidates' interpreter; null: codea1's own, or the service's")
    require: list[str] = Field(
        default_factory=list, description="layers whose absence is an error: " + ", ".join(LAYERS)
    )

    @model_validator(mode="after")
    def _exists(self) -> SandboxSection:
        try:
            self.endpoint = backend_endpoint(self.backend, self.endpoint)  # kept, whatever the shell holds later
            check_layers(self.require)
        except UserError as error:
            raise ValueError(f"{error.what}; {error.hint}") from None
        return self

    @property
    def on_this_machine(self) -> bool:
        """Whether programs run on the machine that asks for them."""
        return BACKENDS[self.backend].on_this_machine


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """Which sandbox is wanted; the fields that `SandboxSection` has too mean the same.

    backend: a key of `BACKENDS`. endpoint: the address of a sandbox-fusion service. patience_s: how long its outage is
    waited for. workers: programs at once per machine, or requests at once to a service; None: one per CPU, 8 requests.
    python: the candidates' interpreter, where they run. require: layers whose absence is an error. warm: modules that
    are imported before programs are. environment: what programs find around them.

    Raises:
        UserError: there is no such backend, or the endpoint is missing, no address, or goes with another backend; or
            there are no workers.
    """

    backend: str = "local"
    endpoint: str | None = None
    patience_s: float = 60.0
    python: str | None = None
    require: Sequence[str] = ()
    workers: int | None = None
    warm: Sequence[str] = ("numpy",)
    environment: SandboxEnvironment = field(default_factory=SandboxEnvironment)

    def __post_init__(self) -> None:
        backend_endpoint(str(self.backend), self.endpoint)
        if isinstance(self.workers, int) and self.workers < 1:
            raise UserError(f"a sandbox of {self.workers} workers runs nothing", hint="workers: 1 or more")

    @property
    def on_this_machine(self) -> bool:
        """Whether programs run on the machine that asks for them."""
        return BACKENDS[self.backend].on_this_machine


def make_sandbox(options: SandboxOptions) -> Sandbox:
    """The backend that `options` name, started.

    Raises:
        EnvironmentFault: it does not start, or lacks a required layer.
        UserError: a required layer does not exist.
    """
    return BACKENDS[options.backend].open(options)


def make_local(options: SandboxOptions) -> LocalSandbox:
    """The local backend of this machine alone, for callers that use what only it has: layers, unittest modules.

    Raises:
        EnvironmentFault, UserError: as `make_sandbox`; also on another system than Linux.
    """
    demand_linux("the local sandbox", "sandbox.backend=fusion, or --sandbox fusion, uses a service")
    from codea1_cli.sandbox.local import LocalSandbox

    return LocalSandbox(options.workers or cores(), **_shared(options))


def _fusion(options: SandboxOptions) -> Sandbox:
    from codea1_cli.sandbox.fusion import FusionSandbox

    return FusionSandbox(options.endpoint, options.workers or 8, options.patience_s, **_shared(options))


def _shared(options: SandboxOptions) -> dict[str, Any]:
    """What every backend is made with."""
    return {name: getattr(options, name) for name in ("python", "require", "warm", "environment")}


def _no_endpoint(endpoint: str | None) -> None:
    if endpoint is not None:
        raise UserError(
            f"the local sandbox has no endpoint, such as {endpoint}", "the service's sandbox is called fusion"
        )


@dataclass(frozen=True, slots=True)
class Backend:
    """A row of `BACKENDS`.

    open: starts it; imports what it needs when it is called. endpoint: the endpoint to use for the one that is named;
    it raises UserError where that is missing, wrong, or of no use. on_this_machine: whether programs run on the machine
    that asks for them, with its files, interpreters and cores.
    """

    open: Callable[[SandboxOptions], Sandbox]
    endpoint: Callable[[str | None], str | None]
    on_this_machine: bool


def backend_endpoint(backend: str, endpoint: str | None) -> str | None:
    """The endpoint that a backend uses, where `endpoint` is the one that is named.

    Raises:
        UserError: there is no such backend, or the endpoint is missing, wrong, or of no use.
    """
    if backend not in BACKENDS:
        raise UserError(
            f"no sandbox is called {backend!r}", did_you_mean(backend, BACKENDS) or f"one of {', '.join(BACKENDS)}"
        )
    return BACKENDS[backend].endpoint(endpoint)


def check_endpoint(endpoint: str | None) -> str:
    """The address without a slash at its end; None takes the variable SANDBOX_FUSION_ENDPOINT.

    Raises:
        UserError: there is none, or it is not the address of a service.
    """
    found = (endpoint or os.environ.get(ENDPOINT) or "").strip()
    hint = f"http://HOST:PORT, as --endpoint, sandbox.endpoint or {ENDPOINT}"
    if not found:
        raise UserError("no sandbox-fusion endpoint is named", hint)
    return check_address(found, "a sandbox-fusion service", hint)


BACKENDS = {
    "local": Backend(make_local, _no_endpoint, on_this_machine=True),
    "fusion": Backend(_fusion, check_endpoint, on_this_machine=False),
}
