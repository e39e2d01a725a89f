"""Parsing text that a model wrote: bounded in size, and never more than a None for what does not parse."""

import ast
import threading
import warnings

MAX_REPLY_CHARS = 200_000
"""What lies beyond in a reply is not read (a reply of 4,096 tokens holds about 16,000 characters)."""

MAX_STATEMENT_CHARS = 32_000
"""A longer assert is refused, as is one whose variables make it longer."""

PARSER = threading.RLock()
"""Held while Python's parser builds a tree. CPython 3.11 and 3.12 count its depth once for all threads, so that two at work
may fail with SystemError ("AST constructor recursion depth mismatch"); both hold the interpreter lock anyway."""

_FILENAME = "<reply>"
# Python warns of odd escapes and literals while it parses: a model's style is no news for the user.
warnings.filterwarnings("ignore", module=_FILENAME)


def parse(source: str) -> ast.Module | None:
    """The syntax tree of `source`, or None. Contains what CPython's parser raises on hostile text, NUL and surrogates
    included; its own stack checks turn deep nesting into MemoryError or RecursionError."""
    try:
        with PARSER:
            return ast.parse(source, filename=_FILENAME)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def unparse(node: ast.AST) -> str | None:
    """Source of `node` in one normal form, or None where it has none (an integer too long to print, deep nesting)."""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError, MemoryError):
        return None


def normal_newlines(text: str) -> str:
    """The newlines that Python's tokenizer would see."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The line that a solution begins with: `def name(arguments) -> result:`, its defaults and annotations kept."""
    kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{kind} {function.name}({ast.unparse(function.args)}){result}:"
