"""The errors that a user may meet: each says what is wrong, how to go on, and which exit code it ends with."""

from collections.abc import Sequence


def first_line(error: BaseException) -> str:
    """What a library's error says, on one line; its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def some(names: Sequence[str], shown: int = 5) -> str:
    """The first few of many names, for a message, and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


class CodeA1Error(Exception):
    """Base of every error shown as `error: what` and `hint: how`, without a traceback."""

    exit_code = 1

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __reduce__(self):  # keeps the hint when an error crosses a process boundary
        return type(self), (self.what, self.hint)


class UserError(CodeA1Error, ValueError):
    """Wrong usage, a wrong recipe or a bad input file."""

    exit_code = 2


class EnvironmentFault(CodeA1Error, OSError):
    """The machine, its devices or the sandbox cannot do what was asked."""

    exit_code = 3

    def __str__(self) -> str:  # OSError would print the pair (what, hint)
        return self.what


class SandboxOutage(EnvironmentFault):
    """The sandbox went on failing: nothing of the step at hand can be scored, what came before it is saved."""


class RunFailed(CodeA1Error, RuntimeError):
    """A run that started and could not go on."""

    exit_code = 1
