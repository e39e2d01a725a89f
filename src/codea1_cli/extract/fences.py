"""Fenced blocks of a reply, as models write them: indented, with tildes, nested, unclosed, or code beside the fence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from codea1_cli.extract.source import MAX_REPLY_CHARS, normal_newlines

PYTHON = frozenset({"", "python", "python2", "python3", "py", "py3", "sage", "ipython"})

_FENCE_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^`\n]*)$"  # a line of its own
    r"|(?P<lead>`{3,})(?P<lead_info>(?:python|py)3?)[ \t]*$"  # prose, then an opening fence
    r"|(?P<tail>`{3,})[ \t]*$",  # code, then a closing fence
    re.MULTILINE | re.IGNORECASE,
)
_LANGUAGE = re.compile(r"[ \t]*(?P<language>[\w.+#-]*)(?P<rest>.*)")
_ATTRIBUTES = re.compile(r"[ \t]*(?:\{.*\}|[\w-]+=\S*(?:[ \t]+[\w-]+=\S*)*)?[ \t]*$")
_THINK_END = re.compile(r"</think(?:ing)?>")
_THINK_OPEN = re.compile(r"\s*<think(?:ing)?>")


@dataclass(frozen=True)
class Fence:
    """One fence line; `body` is where a block that it opens begins, `start` where a block that it closes ends."""

    start: int
    body: int
    ticks: str
    language: str
    indent: int
    may_open: bool


def answer_text(reply: str) -> str | None:
    """The reply's first MAX_REPLY_CHARS after its thinking; None when the thinking was never closed (a truncation)."""
    text = normal_newlines(reply[:MAX_REPLY_CHARS])
    ends = [match.end() for match in _THINK_END.finditer(text)]
    if ends:
        text = text[ends[-1] :]
    return None if _THINK_OPEN.match(text) else text


def fences(text: str) -> list[Fence]:
    """Every fence line of `text`, in order."""
    return [_fence(match) for match in _FENCE_LINE.finditer(text)]


def _fence(match: re.Match[str]) -> Fence:
    if match["tail"]:
        return Fence(match.start("tail"), match.end(), match["tail"], "", 0, may_open=False)
    if match["lead"]:
        return Fence(match.start("lead"), match.end() + 1, match["lead"], match["lead_info"].lower(), 0, may_open=True)
    info = _LANGUAGE.match(match["info"])
    assert info is not None
    language = info["language"].lower()
    body = match.end() + 1
    if not _ATTRIBUTES.match(info["rest"]):  # code beside the fence: "```def f(x):" or "```python def f(x):"
        known = language in PYTHON
        code = match["info"][info.end("language") if known else 0 :].lstrip()
        body = match.end() - len(code)
        language = language if known else ""
    return Fence(match.start(), body, match["ticks"], language, len(match["indent"]), may_open=True)


def closes(end: Fence, start: Fence) -> bool:
    """Whether `end` may close the block that `start` opened: the same character, at least as many of them."""
    return end.ticks.startswith(start.ticks)


def body_of(text: str, start: Fence, end: Fence | None) -> str:
    """The text between two fences (to the end of the text when None), less the opening fence's indentation."""
    body = text[start.body : end.start if end else len(text)].rstrip()
    if start.indent:
        body = re.sub(rf"^[ \t]{{1,{start.indent}}}", "", body, flags=re.MULTILINE)
    return body.strip("\n")


def python_bodies(text: str) -> Iterator[str]:
    """The bodies of the python blocks, each up to the first fence that may close it."""
    lines = fences(text)
    index = 0
    while index < len(lines):
        start = lines[index]
        index += 1
        if not start.may_open:
            continue
        while index < len(lines) and not closes(lines[index], start):
            index += 1
        end = lines[index] if index < len(lines) else None
        if end is not None and not (end.may_open and end.language):
            index += 1  # a fence that names a language opens the next block as well
        if start.language in PYTHON:
            yield body_of(text, start, end)


def before_first_fence(text: str) -> str:
    """All of `text` when it has no fence: models often forget the opening one."""
    first = _FENCE_LINE.search(text)
    return text if first is None else text[: first.start()]
