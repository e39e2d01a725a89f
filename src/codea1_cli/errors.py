"""The errors that a user may meet: each says what is wrong, how to go on, and which exit code it ends with. And what
hints are made of: the name that was meant, and commands to paste into a shell.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_KIND = re.compile(r"\b(?:Value error|Assertion failed), ")
_REASONS = 8  # why something is left out, before the rest is summed up


def first_line(error: BaseException) -> str:
    """What a library's error says, on one line; its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def plain_fault(message: str) -> str:
    """What pydantic says of a value, without the kind of exception that raised it."""
    return _KIND.sub("", message, count=1)


def some(names: Sequence[str], shown: int = 5) -> str:
    """The first few of many names, for a message, and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def left_out(found: Mapping[str, Sequence[str]], what: str = "problem") -> list[str]:
    """What is left out of a run, a line for each of the commonest reasons; `found` has the ids by reason."""
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))
    lines = [f"left out {counted(len(ids), what)}, {reason}: {some(ids, 3)}" for reason, ids in ranked[:_REASONS]]
    if rest := ranked[_REASONS:]:
        ids = [one for _, ids in rest for one in ids]
        lines.append(f"left out {counted(len(ids), what)} more, for {len(rest)} other reasons: {some(ids, 3)}")
    return lines


def counted(count: int, what: str, many: str | None = None) -> str:
    """`1 problem`, `2 problems`; `many` is a plural that no s makes."""
    return f"{count} {what if count == 1 else many or f'{what}s'}"


def size_text(count: float) -> str:
    """Bytes for people, in decimal units as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def no_logins(text: str) -> str:
    """The text with the logins of its addresses, `http://USER:PASSWORD@HOST`, left out: it may end in a log."""
    return _LOGIN.sub("", text)


def clock(seconds: float) -> str:
    """`5:19`, or `1:05:19` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class CodeA1Error(Exception):
    """Base of every error shown as `error: what` and `hint: how`, without a traceback and without anybody's login."""

    exit_code = 1

    def __init__(self, what: str, hint: str | None = None) -> None:
        self.what, self.hint = no_logins(what), hint and no_logins(hint)
        super().__init__(self.what)

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


class CannotKeep(EnvironmentFault):
    """What is fetched cannot be written where it would be kept; the hint names the variable of another place."""


class Unreachable(EnvironmentFault):
    """What is fetched cannot be: nobody answers, or nobody is to be asked. `why` is the same for all of one address."""

    def __init__(self, what: str, hint: str | None = None, why: str = "") -> None:
        super().__init__(what, hint)
        self.why = no_logins(why)

    def __reduce__(self):
        return type(self), (self.what, self.hint, self.why)


class SandboxOutage(EnvironmentFault):
    """The sandbox went on failing: nothing of the step at hand can be scored, what came before it is saved."""


class RunFailed(CodeA1Error, RuntimeError):
    """A run that started and could not go on."""

    exit_code = 1


def near(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` of `names` that `name` may be misspelt from, best first: one wrong letter in five, at least one.

    Case, `-` for `_` and what is before the last '/' are forgiven.
    """
    from difflib import get_close_matches

    typed = _folded(name)
    folded: dict[str, list[str]] = {}
    for candidate in dict.fromkeys(names):
        for key in {_folded(candidate), _folded(candidate).rpartition("/")[2]}:
            folded.setdefault(key, []).append(candidate)
    alike = get_close_matches(typed, folded, n=20, cutoff=0.6)  # quick, and takes livecodebench for bigcodebench
    faults = {key: _edits(typed, key) for key in alike}
    close = sorted((key for key in alike if faults[key] <= max(1, len(typed) // 5)), key=faults.__getitem__)
    return list(dict.fromkeys(candidate for key in close for candidate in folded[key]))[:count]


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_")


def _edits(one: str, other: str) -> int:
    """Letters added, left out, replaced or swapped with the next one (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """The hint 'did you mean ...?'; None where nothing is near."""
    return meant(near(name, names))


def meant(names: Iterable[str]) -> str | None:
    """The hint that offers these names, each quoted as a shell needs it; None for no name."""
    offered = " or ".join(map(shlex.quote, names))
    return f"did you mean {offered}?" if offered else None


def command(*words: object) -> str:
    """`codea1 WORDS` as it is typed into a shell, each word quoted where it has to be."""
    return shlex.join(["codea1", *map(str, words)])
