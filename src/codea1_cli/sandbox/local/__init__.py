"""The local backend: jailed forks of warm interpreters."""

from codea1_cli.sandbox.local.pool import LocalSandbox

__all__ = ["LocalSandbox"]
