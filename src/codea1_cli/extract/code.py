"""From a Code LLM's reply to one program."""

import ast
import re
import textwrap
import unicodedata
from collections.abc import Iterator

from codea1_cli.extract.fences import answer_text, before_first_fence, python_bodies
from codea1_cli.extract.source import parse

_CODE_START = re.compile(r"^(?:def|class|import|from|async def|@\w)", re.MULTILINE)
_PAPER_BLOCK = re.compile(r"```python(.*?)```", re.DOTALL)
_PAPER_ANY_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)


def extract_code(text: str, entry_point: str, mode: str = "default") -> str:
    """The program in a reply, "" when there is none.

    default: the last python block that parses and defines `entry_point`, else the text before the first fence when
    that does (a forgotten opening fence), else the last block that parses, else the last block as it stands; without
    any block the text.
    paper: the first python block, else the first block, else the whole text.
    """
    if mode == "paper":
        found = _PAPER_BLOCK.search(text) or _PAPER_ANY_BLOCK.search(text)
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
