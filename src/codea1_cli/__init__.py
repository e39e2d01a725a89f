"""codea1: trains a Code LLM and a Test LLM against each other with GRPO."""


def __getattr__(name: str) -> str:
    """`__version__`, looked up when somebody asks: until this file is run, an interrupt finds no handler."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("codea1")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
