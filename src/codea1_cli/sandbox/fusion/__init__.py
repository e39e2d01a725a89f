"""The sandbox-fusion backend."""

from codea1_cli.sandbox.fusion.backend import FusionSandbox

__all__ = ["FusionSandbox"]
