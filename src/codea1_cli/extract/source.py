"""Python source that a model wrote: parsed within bounds, with a None for what does not parse, and cut into logical
lines without parsing, so that a broken line costs one line."""

import ast
import re
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

MAX_REPLY_CHARS = 200_000
"""What lies beyond in a reply is not read (a reply of 4,096 tokens holds about 16,000 characters)."""

MAX_STATEMENT_CHARS = 32_000
"""A longer assert is refused, as is one whose variables make it longer."""

PARSER = threading.RLock()
"""Held while Python's parser builds a tree. CPython 3.11 and 3.12 count its depth once for all threads, so that two at
work may fail with SystemError ("AST constructor recursion depth mismatch"); both hold the interpreter lock anyway."""

_FILENAME = "<reply>"
# Python warns of odd escapes and literals while it parses: a model's style is not for the user.
warnings.filterwarnings("ignore", module=_FILENAME)

_TOKEN = re.compile(
    r"'''|\"\"\""
    r"|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?"  # a string that is never closed ends with its line
    r"|#[^\n]*|[(\[{]|[)\]}]|\\\n|\n",
    re.DOTALL,
)
_TRIPLE_END = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""')}
# Keywords that no expression holds: inside brackets they show that an earlier line never closed them.
_STATEMENT = re.compile(r"[ \t]*(?:assert|def|class|import|return|raise|try|while|with)\b")
_INDENT = re.compile(r"[ \t\f]*")


def parse(source: str) -> ast.Module | None:
    """The syntax tree of `source`, or None. Contains what CPython's parser raises on hostile text, NUL and surrogates
    included; its own stack checks turn deep nesting into MemoryError or RecursionError."""
    try:
        with PARSER:
            return ast.parse(source, filename=_FILENAME)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def parse_call(text: str) -> ast.Call:
    """The call that `text` is; it is known to be one."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


def unparse(node: ast.AST) -> str | None:
    """Source of `node` in one normal form, or None where it has none (an integer too long to print, deep nesting)."""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError, MemoryError):
        return None


def names_in(node: ast.AST) -> set[str]:
    """Every name that `node` mentions."""
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def within(node: ast.AST) -> list[ast.AST]:
    """The nodes inside a statement that run with it: those of functions defined in it do not."""
    found: list[ast.AST] = []
    pending = list(ast.iter_child_nodes(node))
    while pending:
        part = pending.pop()
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            found.append(part)
            pending += ast.iter_child_nodes(part)
    return found


def loaded(tree: ast.Module) -> list[ast.AST]:
    """The nodes that run when a module is loaded; of the definitions among them those without what is inside."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = [tree]
    while pending:
        found.append(node := pending.pop())
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return found


def bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that nodes bind, in whatever scope: by assignment, definition or import, in a loop, as an exception or
    a part of a pattern. Arguments are none."""
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name):
            found |= {node.id} if isinstance(node.ctx, ast.Store) else set()
        elif name := getattr(node, "name", None):
            found.add(str(name))
    return found


def imports(tree: ast.Module) -> set[str]:
    """The top-level modules that a program's import statements name, wherever they stand; "" for a relative import."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("" if node.level else (node.module or "").partition(".")[0])
    return found


def normal_newlines(text: str) -> str:
    """The newlines that Python's tokenizer would see."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The line that a solution begins with: `def name(arguments) -> result:`, its defaults and annotations kept."""
    kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{kind} {function.name}({ast.unparse(function.args)}){result}:"


@dataclass(frozen=True)
class LogicalLine:
    """One statement's text without its indentation; `indent` in columns, `end` where the next line starts."""

    text: str
    indent: int
    start: int
    end: int


class LineReader:
    """Reads logical lines from any offset on; a whole text in linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._unclosed: set[str] = set()

    def read(self, start: int) -> LogicalLine | None:
        """The logical line at `start`, which is the start of a physical line; None at the end of the text."""
        if start >= len(self.text):
            return None
        end = self._end(start)
        line = self.text[start:end]
        indent = _INDENT.match(line)
        assert indent is not None
        columns = len(indent[0].replace("\f", "").expandtabs(8))
        return LogicalLine(line[indent.end() :].rstrip(), columns, start, end)

    def first_physical(self, line: LogicalLine) -> LogicalLine:
        """The same logical line cut at its first newline."""
        end = self.text.find("\n", line.start, line.end) + 1 or line.end
        return LogicalLine(line.text.partition("\n")[0].rstrip(), line.indent, line.start, end)

    def _end(self, start: int) -> int:
        depth = 0
        position = start
        while match := _TOKEN.search(self.text, position):
            token = match[0]
            position = match.end()
            if token in _TRIPLE_END:
                position = self._after_triple(token, position)
            elif token in "([{":
                depth += 1
            elif token in ")]}":
                depth = max(0, depth - 1)
            elif token == "\n" and (depth == 0 or _STATEMENT.match(self.text, position)):
                return position
        return len(self.text)

    def _after_triple(self, quote: str, position: int) -> int:
        """The offset after the closing quotes; `position` itself when the string is never closed."""
        if quote in self._unclosed:
            return position
        for match in _TRIPLE_END[quote].finditer(self.text, position):
            if match[0] == quote:
                return match.end()
        self._unclosed.add(quote)  # remembered: searching again for each later quote would be quadratic
        return position
