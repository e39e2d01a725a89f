"""From a reply to its fenced blocks, and from a Code LLM's reply to one program.

Models write fences in many ways: indented, with tildes, nested, unclosed, or code beside the fence.
"""

import ast
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codea1_cli.extract.source import MAX_REPLY_CHARS, normal_newlines, parse

_CODE_START = re.compile(r"^(?:def|class|import|from|async def|@\w)", re.MULTILINE)
PAPER_BLOCK = re.compile(r"```python(.*?)```", re.DOTALL)
_PAPER_ANY_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)


def extract_code(text: str, entry_point: str, mode: str = "default") -> str:
    """The program in a reply, "" when there is none.

    default, the first of these that there is: the last python block that parses and defines `entry_point`; the text
    before the first fence, if it does so (a forgotten opening fence); the last block that parses; the last block as it
    stands; the text.
    paper: the first python block, else the first block, else the whole text.
    """
    if mode == "paper":
        found = PAPER_BLOCK.search(text) or _PAPER_ANY_BLOCK.search(text)
        return (found[1] if found else text).strip("\n")
    answer = answer_text(text)
    if answer is None:
        return ""
    blocks = list(_blocks(answer))
    bare = _bare(before_first_fence(answer))
    defining = [source for source, tree in [bare, *blocks] if tree is not None and defines(tree, entry_point)]
    if defining:
        return defining[-1]
    parsed = [source for source, tree in blocks if tree is not None and tree.body]
    if parsed:
        return parsed[-1]
    return blocks[-1][0] if blocks else bare[0]


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a module binds `name` at its top level, inside a top-level if or try included."""
    name = unicodedata.normalize("NFKC", name)
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == name:
                return True
        elif isinstance(node, ast.If | ast.Try | ast.With):
            pending += ast.iter_child_nodes(node)
        elif isinstance(node, ast.ExceptHandler):
            pending += node.body
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return True
        elif isinstance(node, ast.Import | ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            return True
    return False


def _blocks(text: str) -> Iterator[tuple[str, ast.Module | None]]:
    """Each python block and its tree."""
    read: dict[str, tuple[str, ast.Module | None]] = {}

    def parses(body: str) -> bool:
        read[body] = _dedented(body)
        return read[body][1] is not None

    for body in python_bodies(text, parses):
        yield read.get(body) or _dedented(body)


def _bare(text: str) -> tuple[str, ast.Module | None]:
    source, tree = _dedented(text.strip("\n").rstrip())
    if tree is None and (code := _CODE_START.search(source)):
        return source[code.start() :], parse(source[code.start() :])
    return source, tree


def _dedented(source: str) -> tuple[str, ast.Module | None]:
    tree = parse(source)
    if tree is None and source[:1] in " \t":
        shifted = textwrap.dedent(source)
        if (tree := parse(shifted)) is not None:
            return shifted, tree
    return source, tree


PYTHON = frozenset({"", "python", "python2", "python3", "py", "py3", "sage", "ipython"})

_ENDS_TRIED = 5

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


def python_bodies(text: str, parses: Callable[[str], bool] | None = None) -> Iterator[str]:
    """The bodies of the python blocks, each up to the first fence that may close it.

    With `parses`, a block reaches to the first of the next few such fences with which it parses, if there is one: a
    docstring may hold fences. Nor does a fence that nothing closes then hide the blocks after it: it may have been an
    underline.
    """
    lines = fences(text)
    longest = _longest_from(lines)
    index = 0
    while index < len(lines):
        start, python = lines[index], lines[index].language in PYTHON
        index += 1
        if not start.may_open:
            continue
        if longest[index][start.ticks[0]] < len(start.ticks):
            if python:
                yield body_of(text, start, None)
            if parses is None:
                return
            continue
        at = next(k for k in range(index, len(lines)) if closes(lines[k], start))
        if python and parses is not None:
            few = (k for k in range(at, min(at + _ENDS_TRIED, len(lines))) if closes(lines[k], start))
            at = next((k for k in few if parses(body_of(text, start, lines[k]))), at)
        end = lines[at]
        index = (
            at if end.may_open and end.language else at + 1
        )  # a fence that names a language opens the next block too
        if python:
            yield body_of(text, start, end)


def _longest_from(lines: list[Fence]) -> list[dict[str, int]]:
    """The longest fence of each character from every line on, so that an unclosed one costs no walk to the end."""
    longest = [{"`": 0, "~": 0}]
    for line in reversed(lines):
        longest.append({**longest[-1], line.ticks[0]: max(longest[-1][line.ticks[0]], len(line.ticks))})
    return longest[::-1]


def before_first_fence(text: str) -> str:
    """All of `text` when it has no fence: models often forget the opening one."""
    first = _FENCE_LINE.search(text)
    return text if first is None else text[: first.start()]
