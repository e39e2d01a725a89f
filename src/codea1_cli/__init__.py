"""codea1: trains a Code LLM and a Test LLM against each other with GRPO.

What other programs may use of it is in `codea1_cli.api`; its names are here, and are imported when they are asked for.
"""

TYPE_CHECKING = False  # typing's own would be an import: until this file is run, an interrupt finds no handler
if TYPE_CHECKING:
    from codea1_cli.api import (
        BookRow,
        Judged,
        MutationScore,
        Problem,
        SandboxOptions,
        extract_code,
        judge,
        make_sandbox,
        mistake_book,
        mutation_score,
        parse_suite,
        pass_at_k,
        read_problems,
        rollouts,
    )

    __version__: str

__all__ = [
    "BookRow",
    "Judged",
    "MutationScore",
    "Problem",
    "SandboxOptions",
    "__version__",
    "extract_code",
    "judge",
    "make_sandbox",
    "mistake_book",
    "mutation_score",
    "parse_suite",
    "pass_at_k",
    "read_problems",
    "rollouts",
]


def __getattr__(name: str) -> object:
    """`__version__`, and the names of `codea1_cli.api`."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("codea1")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0+unknown"
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from codea1_cli import api

    return getattr(api, name)
