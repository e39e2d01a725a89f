"""What runs inside the sandbox for one test: load the function, run the test, say how it ended or what it covered.

Standard library only (and coverage, for `trace`), Python 3.10 or newer; it is sent as the program, so it imports
nothing of this project. A test may be any statement and shares this process, which is its own: a fork per call. The
token is only handed back by the line behind the test's assert, so that an early end of any kind is not a pass.
"""

import builtins
import collections
import contextlib
import datetime
import importlib
import os
import random
import re
import sys
import time
import types

NAMES = {  # what a test may use without importing it, as in the published runs
    "np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas", "pytest": "pytest",
    "os": "os", "re": "re", "math": "math", "random": "random", "string": "string", "datetime": "datetime",
    "warnings": "warnings", "traceback": "traceback",
}  # fmt: skip
TYPES = ["Any", "Callable", "Dict", "FrozenSet", "Generator", "Iterable", "List", "Optional", "Sequence", "Set"]
TYPES += ["Tuple", "Union"]
MODULE, TEST = "function_under_test", "codea1_test"
_getpid, _exit = os.getpid, os._exit
_USED = __builtins__ if isinstance(__builtins__, dict) else vars(builtins)  # those that functions here look names up in
_TABLES = [(table, dict(table)) for table in (vars(builtins), _USED)]


def offer(space, text):
    """Puts the usual modules that `text` mentions into a namespace."""
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    for name in words & NAMES.keys():
        with contextlib.suppress(ImportError):
            space.setdefault(name, importlib.import_module(NAMES[name]))
    for name in words.intersection(TYPES):
        space.setdefault(name, getattr(importlib.import_module("typing"), name))


def load(source, file="<function>", code=None):
    """A module that holds the function under test, loaded afresh; `code` is its `source` compiled, where it is."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    offer(module.__dict__, source)
    exec(code or compile(source, file, "exec"), module.__dict__)
    return module


def prepare(module, test):
    """The test's function, in a namespace of its own that holds all names of the module."""
    own = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__")
    space = {name: value for name, value in module.__dict__.items() if name not in own}
    space["__name__"] = "test_" + MODULE
    offer(space, test)
    exec(compile(test, "<test>", "exec"), space)
    return space


def describe(fault):
    """Type and message of an exception, without a call of its own methods."""
    try:
        return (type(fault).__name__ + ": " + BaseException.__str__(fault))[:200]
    except BaseException:
        return type(fault).__name__


def check(source, entry, test, token):
    """["passed", token, seconds], ["failed", why], ["redefined", ""] or ["load_error", why]."""
    try:
        module = load(source)
        function = module.__dict__[entry]
    except BaseException as fault:
        return ["load_error", describe(fault)]
    code = getattr(function, "__code__", None)
    try:
        space = prepare(module, test)
        process, began = _getpid(), time.perf_counter()
        try:
            end = space[TEST]()
        finally:
            if _getpid() != process:  # the test forked: its copy has no say
                _exit(0)
        seconds = time.perf_counter() - began
    except BaseException as fault:
        return ["failed", describe(fault)]
    changed = any(table.get(name) is not value for table, before in _TABLES for name, value in before.items())
    changed = changed or any(names.get(entry) is not function for names in (module.__dict__, space))
    if changed or getattr(function, "__code__", None) is not code:
        return ["redefined", ""]
    return ["passed", token, seconds] if type(end) is str and end == token else ["failed", "ended before its assert"]


def check_all(source, entry, tests, token):
    """["passed", token, seconds] when every test passes, each on the function loaded afresh, else what `check` says of
    the first that does not. For tests that can change nothing but what they call."""
    found = ["failed", "no test"]
    for test in tests:
        found = check(source, entry, test, token)
        if found[0] != "passed":
            break
    return found


def trace(source, entry, test):
    """The arcs (from line, to line) that loading the function and running the test took, whether it passes or not."""
    import coverage

    file = os.path.join(os.getcwd(), MODULE + ".py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(source)
    cover = coverage.Coverage(data_file=None, branch=True, include=[file], config_file=False)
    cover.start()
    with contextlib.suppress(BaseException):
        prepare(load(source, file), test)[TEST]()
    cover.stop()
    return [list(arc) for arc in cover.get_data().arcs(file) or []]


def trace_all(source, entry, tests):
    """What `trace` gives for each test, in one process: for tests that are known to end."""
    return [trace(source, entry, test) for test in tests]


def answers(source, calls, code=None):
    """What each call gives, each on a module loaded afresh; raises what the first failing one raises."""
    code = code or compile(source, "<function>", "exec")
    return [eval(compile(call, "<call>", "eval"), load(source, code=code).__dict__) for call in calls]


def each(source, calls):
    """What each call gives, each on a module loaded afresh: [value], or [] where it raises."""
    code = compile(source, "<function>", "exec")
    found: list[list[object]] = []
    for call in calls:
        found.append([])
        with contextlib.suppress(BaseException):
            found[-1] += answers(source, [call], code)
    return found


# -- what a value depends on besides its arguments, and what else a call does ------------------------------------------
MOMENTS = (1342444455, 981173106, 1701292819, 4102444740)  # Monday noon, Saturday night, a November evening, far away
WRITES, READS = "it writes files", "it reads files"
_EVENTS = {
    WRITES: "os.remove os.rename os.mkdir os.rmdir os.link os.symlink os.truncate os.chmod os.chown os.utime",
    READS: "os.listdir os.scandir",
    "it reads its input": "builtins.input",
    "it changes the environment": "os.putenv os.unsetenv os.chdir",
    "it asks for the machine's name": "socket.gethostname",
    "it starts programs": "subprocess.Popen os.system os.exec os.posix_spawn",
    "it uses the network": "socket.connect socket.bind socket.sendto socket.getaddrinfo socket.gethostbyname",
}
_OTHER = """os.cpu_count os.process_cpu_count os.getpid os.getppid os.getlogin os.getuid os.geteuid os.getgid os.getegid
platform.machine platform.node platform.platform platform.processor platform.python_version platform.release
platform.system socket.gethostname socket.getfqdn getpass.getuser locale.getlocale locale.getdefaultlocale
locale.getpreferredencoding tempfile.gettempdir"""
_EFFECTS = {event: effect for effect, events in _EVENTS.items() for event in events.split()}


class Watch:
    """What is done while `on`, as the interpreter's audit events tell it, whether it succeeds or not."""

    def __init__(self):
        self.on, self.seen = False, []
        places = [sys.prefix, sys.base_prefix, "/dev/", "/usr/lib", "/usr/share", *sys.path]
        self.libraries = tuple(place for place in places if len(place) > 1 and place != os.getcwd())
        sys.addaudithook(self.event)

    def event(self, name, args):
        if not self.on:
            return
        effect = _EFFECTS.get(name)
        if name == "open" or effect is READS:
            if type(args[0]) is int or os.fsdecode(args[0] or "").startswith(self.libraries):  # open already; an import
                return
            effect = WRITES if name == "open" and args[2] & (os.O_ACCMODE | os.O_CREAT) else READS
        if effect:
            self.seen.append(effect)


class Variables(os._Environ):
    """The environment's, every name being there with another value while `other`. What the function itself reads is
    told `watch`: it may ask for a value that is neither here nor there."""

    def __init__(self, watch):
        self.__dict__.update(vars(os.environ))
        self.watch, self.other = watch, False

    def __getitem__(self, key):
        frame: types.FrameType | None = sys._getframe(1)
        while frame and frame.f_globals.get("__name__") in ("os", "collections.abc", "_collections_abc"):
            frame = frame.f_back
        if self.watch.on and frame and frame.f_globals.get("__name__") == MODULE:
            self.watch.seen.append("it reads the environment")
        return "17" if self.other else super().__getitem__(key)


@contextlib.contextmanager
def elsewhere(variables):
    """As if on another machine, by another user, in another folder, time zone and environment, in an older Python."""
    folder, saved, number = os.getcwd(), [], 0 if os.getuid() else 17
    version_info = collections.namedtuple("version_info", "major minor micro releaselevel serial")
    flags = {name: int(not getattr(sys.flags, name)) for name in dir(sys.flags) if name[0] != "_"}
    values: dict[str, object] = dict.fromkeys(_OTHER.split(), lambda *_, **__: number)
    values |= {"sys.version_info": version_info(3, 0, 0, "final", 0), "sys.flags": types.SimpleNamespace(**flags)}
    values |= {"sys.platform": "win32", "sys.version": "other", "sys.executable": "/other", "sys.argv": ["other", "-x"]}
    for name, value in values.items():
        module, key = name.split(".")
        if key in (space := vars(sys.modules.get(module, types))):
            saved.append((space, key, space[key]))
            space[key] = value
    variables.other, variables["TZ"] = True, "XXX-5:30"
    time.tzset()
    os.chdir("/" if folder != "/" else "/tmp")
    try:
        yield
    finally:
        for space, key, value in saved:
            space[key] = value
        variables.other = False
        del variables["TZ"]
        time.tzset()
        os.chdir(folder)


class Clock:
    """The standard library's clock: it stands at `moment`, a millisecond later at each look, or goes on as it does
    where that is None. Nobody sleeps: the clock is put forward."""

    def __init__(self):
        self.moment, self.late, self.real, strftime = None, 0.0, time.time, time.strftime
        for name in ("gmtime", "localtime", "ctime"):
            setattr(time, name, lambda at=None, real=getattr(time, name): real(self.now() if at is None else at))
        vars(time).update(
            time=self.now, time_ns=lambda: int(self.now() * 1e9),
            sleep=lambda seconds: setattr(self, "late", self.late + seconds),
            strftime=lambda form, at=None: strftime(form, time.localtime() if at is None else at),
        )  # fmt: skip

        class Kind(type):
            def __instancecheck__(cls, one):
                return isinstance(one, cls.__mro__[1]) if "today" in vars(cls) else type.__instancecheck__(cls, one)

        class Date(datetime.date, metaclass=Kind):
            today = classmethod(lambda cls: cls.fromtimestamp(time.time()))

        class Moment(datetime.datetime, metaclass=Kind):
            now = classmethod(lambda cls, tz=None: cls.fromtimestamp(time.time(), tz))
            today = classmethod(lambda cls: cls.fromtimestamp(time.time()))
            utcnow = classmethod(lambda cls: cls.now(datetime.timezone(datetime.timedelta())).replace(tzinfo=None))

        vars(datetime).update(date=Date, datetime=Moment)

    def now(self):
        self.late += 0.001
        return self.late + (self.real() if self.moment is None else self.moment)


def depends(source, calls, seeds):
    """For each call, what its value depends on besides its arguments, and what it does besides giving it; empty texts
    for nothing. A call is made on a module loaded afresh with `seeds` seeds of the generators of random numbers, at
    several times, once as if elsewhere, and twice on a module that all calls share."""
    code, watch, clock, apart = compile(source, "<function>", "exec"), Watch(), Clock(), {}
    vars(os)["environ"] = Variables(watch)

    def given(call, moment, seed, space=None):
        clock.moment, clock.late = moment, 0.0
        random.seed(seed)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed(seed)
        try:
            space = load(source, code=code).__dict__ if space is None else space
            watch.on = True
            return repr(eval(compile(call, "<call>", "eval"), space))
        except BaseException as fault:
            return "raises " + type(fault).__name__
        finally:
            watch.on = False

    runs, found = [("the clock", moment, 0) for moment in (*MOMENTS[1:], None)], []
    runs = [*(("chance", MOMENTS[0], seed) for seed in range(1, seeds)), *runs]
    for call in calls:
        watch.seen, there = [], os.stat(".").st_size
        apart[call] = given(call, MOMENTS[0], 0)
        effect = min(watch.seen, default=WRITES if os.stat(".").st_size != there else "")
        what = next((name for name, *run in runs if not effect and given(call, *run) != apart[call]), "")
        tossed = any(given(call, MOMENTS[0], 0) != apart[call] for _ in range(seeds if what == "the clock" else 0))
        with elsewhere(os.environ):
            other = not (what or effect) and given(call, MOMENTS[0], 0) != apart[call]
        what = "chance" if tossed else "the machine or the environment" if other else what
        found.append([what, effect])
    alone = [at for at, row in enumerate(found) if row == ["", ""]]
    shared = load(source, code=code).__dict__
    for at in (*alone, *reversed(alone)):
        if given(calls[at], MOMENTS[0], 0, shared) != apart[calls[at]]:
            found[at][0] = "earlier calls"
    return found
