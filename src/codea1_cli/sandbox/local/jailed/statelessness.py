"""Whether a program can carry state from one call to the next, judged from its syntax tree. Standard library only.

Only a program that plainly cannot is called stateless, and then all its calls may share one process; every other one
pays a fork for each call. A wrong "stateless" costs no more than an answer that depends on the order of the calls.
"""

from __future__ import annotations

import ast
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = _words(
    """__future__ abc array ast base64 binascii bisect cmath collections copy dataclasses datetime difflib enum
    fractions functools hashlib heapq itertools json math numbers operator re statistics string struct sys textwrap
    time typing typing_extensions unicodedata zlib numpy"""
)
FORBIDDEN = _words(
    """globals locals vars eval exec compile setattr delattr getattr open breakpoint __import__ __builtins__ lru_cache
    cache cached_property singledispatch singledispatchmethod total_ordering getcontext setcontext localcontext
    random seterr errstate setrecursionlimit modules settrace setprofile stdout stdin stderr setitem delitem iadd
    iconcat attrgetter methodcaller register ABCMeta ABC setfirstweekday encodings errcall set_printoptions
    __class__ _getframe excepthook displayhook intern path argv meta_path path_hooks"""
)
_MAKERS = _words("""float int str bool complex bytes frozenset TypeVar namedtuple NewType Fraction compile""")
_MAKER_IMPORTS = _words("""TypeVar namedtuple NewType Fraction re collections typing fractions""")
_FIRST = _words("""map filter reduce defaultdict field super""")  # take a function first, and only call it
_SECOND = _words("""isinstance issubclass""")
_SCANS = _words("""len sum min max sorted enumerate set list tuple zip reversed range any all""")
_DECORATORS = _words("""staticmethod classmethod property dataclass wraps setter unique abstractmethod overload""")
_READERS = _words("""get items keys values index count copy isdisjoint issubset issuperset union intersection""")
_DUNDERS = _words("""__init__ __name__ __len__ __str__ __repr__ __eq__ __lt__ __getitem__ __contains__ __iter__""")
_HARMLESS = re.compile(  # one call on literals
    r"""[A-Za-z]\w*\((?:[-+*0-9.,\s\[\](){}:]|'[^'\\\n]*'|"[^"\\\n]*"|True|False|None)*\)"""
)
_LITERALS = (ast.List, ast.Dict, ast.Set)
_MENTIONS = (ast.Attribute, ast.ClassDef, ast.Raise, ast.ExceptHandler, ast.arg, ast.AnnAssign, ast.FunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class _Stateful(Exception):
    pass


def is_stateless(tree: ast.Module) -> bool:
    """Whether no call of the program's functions can change what a later one sees."""
    try:
        _Program(tree)
    except _Stateful:
        return False
    return True


def is_plain_call(call: str) -> bool:
    """Whether a call's arguments are literals, arithmetic and plain calls, nothing that binds or reaches for names.

    Raises what parsing raises.
    """
    if _HARMLESS.fullmatch(call):
        return True
    for node in ast.walk(ast.parse(call, mode="eval")):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda)):
            return False
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            return False
        if isinstance(node, ast.Name) and (node.id in FORBIDDEN or node.id.startswith("_")):
            return False
    return True


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self.outer: set[str] = set()  # functions and classes of the module
        self.tables: set[str] = set()  # mutable literals of the module: to be read only
        self.imported: set[str] = set()
        self.mentions_type = self.stores_attributes = False
        body = [statement for statement in tree.body if not _is_main_guard(statement)]
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports(node)
        for statement in body:
            self.module_statement(statement)
        for statement in body:
            if not (isinstance(statement, ast.Expr) and _is_recursion_limit(statement.value)):
                self.visit(statement, frozenset())

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        if any(name.partition(".")[0] not in MODULES for name in names):
            raise _Stateful
        for alias in node.names:
            if alias.name.rpartition(".")[2] in FORBIDDEN:
                raise _Stateful
            self.imported.add((alias.asname or alias.name).partition(".")[0])

    def module_statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.outer.add(node.name)
            self.definition(node)
        elif isinstance(node, ast.ClassDef):
            self.outer.add(node.name)
            self.class_body(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self.constant(node)
        elif isinstance(node, ast.Expr):
            if not (isinstance(node.value, ast.Constant) or _is_recursion_limit(node.value)):
                raise _Stateful
        elif not isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)):
            raise _Stateful

    def constant(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not all(isinstance(target, ast.Name) for target in targets):
            raise _Stateful
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if node.value is None:
            return
        if isinstance(node.value, ast.Lambda):
            self.outer |= names
            self.definition(node.value)
        elif self.frozen(node.value):
            mentioned = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
            if mentioned & (self.outer | self.imported):
                self.outer |= names
        elif isinstance(node.value, _LITERALS) and all(self.frozen(part) for part in _parts(node.value)):
            self.tables |= names
        else:
            raise _Stateful

    def frozen(self, node: ast.expr) -> bool:
        """An expression whose value nobody can change."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return node.id not in self.tables
        if isinstance(node, ast.Tuple):
            return all(self.frozen(part) for part in node.elts)
        if isinstance(node, ast.UnaryOp):
            return self.frozen(node.operand)
        if isinstance(node, ast.BinOp):
            return self.frozen(node.left) and self.frozen(node.right)
        if isinstance(node, (ast.Attribute, ast.Subscript)):  # math.inf, an alias such as List[int], a table's entry
            return isinstance(node.value, ast.Name)
        if not isinstance(node, ast.Call) or _last_name(node.func) not in _MAKERS:
            return False
        root = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        name = root.id if isinstance(root, ast.Name) else ""
        return name not in self.outer and (name not in self.imported or name in _MAKER_IMPORTS)

    def class_body(self, node: ast.ClassDef) -> None:
        if node.keywords:
            raise _Stateful
        self.decorators(node.decorator_list)
        for part in node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.definition(part)
            elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                value = part.value
                is_field = isinstance(value, ast.Call) and _last_name(value.func) == "field"
                if not (value is None or is_field or self.frozen(value)):
                    raise _Stateful
            elif not (
                isinstance(part, ast.Pass) or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ):
                raise _Stateful

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        if not all(self.frozen(default) for default in defaults):
            raise _Stateful
        if not isinstance(node, ast.Lambda):
            self.decorators(node.decorator_list)

    def decorators(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            if _last_name(node.func if isinstance(node, ast.Call) else node) not in _DECORATORS:
                raise _Stateful

    def visit(self, node: ast.AST, local: frozenset[str]) -> None:
        if isinstance(node, ast.Global) or (isinstance(node, ast.NamedExpr) and not local):
            raise _Stateful
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and "__" in node.value and node.value.isidentifier():
                raise _Stateful
        elif isinstance(node, _FUNCTIONS):
            local = local | (_bound(node) - self.tables - self.outer - self.imported)
        elif isinstance(node, ast.Attribute):
            self.attribute(node, local)
        elif isinstance(node, ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                self.store(node, local)
        elif isinstance(node, ast.Name):
            self.name(node, local)
        for part in ast.iter_child_nodes(node):
            if not (isinstance(part, ast.Name) and self.harmless(node, part)):
                self.visit(part, local)

    def name(self, node: ast.Name, local: frozenset[str]) -> None:
        if node.id in FORBIDDEN and node.id not in local:
            raise _Stateful
        if node.id == "type":
            self.mentions_type = True
        elif isinstance(node.ctx, ast.Load) and node.id in (self.tables | self.outer | self.imported):
            raise _Stateful  # a bare mention may become an alias; the harmless ones never get here
        if self.mentions_type and self.stores_attributes:
            raise _Stateful

    def harmless(self, node: ast.AST, part: ast.Name) -> bool:
        """Whether a mention of a module's name can only read or call it."""
        if part.id in FORBIDDEN or not isinstance(part.ctx, ast.Load):
            return False
        if part.id in self.tables:
            return _only_reads(node, part)
        if part.id not in self.outer and part.id not in self.imported:
            return False
        if isinstance(node, ast.Call):
            taker = _last_name(node.func)
            place = node.args.index(part) if part in node.args else -1
            return part is node.func or (place == 0 and taker in _FIRST) or (place == 1 and taker in _SECOND)
        if isinstance(node, ast.keyword):
            return node.arg in ("key", "default_factory")
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Load)
        return isinstance(node, _MENTIONS)

    def attribute(self, node: ast.Attribute, local: frozenset[str]) -> None:
        if node.attr in FORBIDDEN - {"compile"} or (node.attr.startswith("__") and node.attr not in _DUNDERS):
            raise _Stateful
        if not isinstance(node.ctx, ast.Load):
            self.store(node, local)
        elif isinstance(node.value, ast.Name) and node.value.id in self.imported and node.attr.startswith("_"):
            raise _Stateful

    def store(self, node: ast.Attribute | ast.Subscript, local: frozenset[str]) -> None:
        """A store into an object: its root must be a local variable."""
        root: ast.expr = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name) or root.id not in local or root.id == "cls":
            raise _Stateful
        if isinstance(node, ast.Attribute) and root.id != "self":
            self.stores_attributes = True
            if self.mentions_type:
                raise _Stateful


def _only_reads(node: ast.AST, part: ast.Name) -> bool:
    """Whether a table's mention only looks something up in it."""
    if isinstance(node, ast.Attribute):
        return node.attr in _READERS
    if isinstance(node, ast.Call):
        return part is not node.func and _last_name(node.func) in _SCANS
    if isinstance(node, ast.Subscript):
        return part is node.value and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Compare) or (isinstance(node, (ast.For, ast.comprehension)) and part is node.iter)


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Compare):
        return False
    sides = [node.test.left, *node.test.comparators]
    names = [s.id for s in sides if isinstance(s, ast.Name)]
    texts = [s.value for s in sides if isinstance(s, ast.Constant)]
    return names == ["__name__"] and texts == ["__main__"] and isinstance(node.test.ops[0], ast.Eq)


def _is_recursion_limit(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not all(isinstance(n, (ast.Constant, ast.BinOp)) for n in node.args):
        return False
    return ast.unparse(node.func) in ("sys.setrecursionlimit", "setrecursionlimit")


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return [part for part in [*node.keys, *node.values] if part is not None]
    return list(node.elts) if isinstance(node, (ast.List, ast.Set)) else []


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _bound(node: ast.AST) -> frozenset[str]:
    """The names that a function binds: parameters and whatever is stored in it, nested functions' too."""
    names = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names |= {part.name for part in ast.walk(node) if isinstance(part, inner) and part is not node}
    names |= {part.name for part in ast.walk(node) if isinstance(part, ast.ExceptHandler) and part.name}
    return frozenset(names)
