"""codea1: trains a Code LLM and a Test LLM against each other with GRPO."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("codea1")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
