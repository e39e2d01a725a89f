"""Ways in which a program ends, for every kind of program that is run.

Each program is `f(x)`, which gives x + 1. One of its calls does what the table says, or its loading does.
"""

HEAD = "import atexit, ctypes, os, signal, subprocess, sys, threading, time\nlibc = ctypes.CDLL(None)\n"
SLEEPER = "if os.fork() == 0:\n    {}\n    time.sleep(47)\n"

# What one call, or loading, does, and the verdicts that it may come to. In a poorer jail a signal may be refused.
ENDS = {
    "exit 0": ("os._exit(0)", "crashed"),
    "exit 77": ("os._exit(77)", "crashed"),
    "exit 255": ("os._exit(255)", "crashed"),
    "sys.exit of nothing": ("sys.exit()", "raised"),
    "sys.exit of a large number": ("sys.exit(10 ** 30)", "raised"),
    "sys.exit of what exits": ("class A:\n    def __str__(s): os._exit(7)\nsys.exit(A())", "crashed"),
    "exit handler": ("atexit.register(os._exit, 9)\nsys.exit(3)", "raised"),
    "exit in a thread": ("threading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(1)", "crashed"),
    "abort": ("os.abort()", "crashed"),
    "abort with a core": ("import resource\nhard = resource.getrlimit(resource.RLIMIT_CORE)[1]\nresource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\nos.abort()", "crashed"),
    "null pointer": ("ctypes.string_at(0)", "crashed"),
    "stack overflow": ("def r(x): return sorted([x], key=r)\nsys.setrecursionlimit(10 ** 9)\nr(1)", "crashed raised memory"),
    "endless recursion": ("sys.setrecursionlimit(10 ** 9)\ndef r(): return [r()]\nr()", "crashed raised memory timeout"),
    "kill": ("os.kill(os.getpid(), 9)", "crashed raised"),
    "real-time signal": ("os.kill(os.getpid(), 40)", "crashed raised"),
    "stop": ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout raised"),
    "stop by the terminal": ("os.kill(os.getpid(), signal.SIGTTOU)", "passed timeout raised"),
    "stops its parent": ("os.kill(os.getppid(), signal.SIGSTOP)", "passed timeout raised"),
    "kills its parent": ("os.kill(os.getppid(), signal.SIGKILL)", "passed crashed raised"),
    "kills its parent in real time": ("os.kill(os.getppid(), 50)", "passed crashed raised"),
    "kills everybody": ("os.kill(-1, 9)", "passed crashed raised"),
    "traced": ("libc.ptrace(0, 0, 0, 0)\nos.kill(os.getpid(), 40)", "crashed raised timeout"),
    "traced and stopped": ("libc.ptrace(0, 0, 0, 0)\nos.kill(os.getpid(), signal.SIGSTOP)", "timeout crashed raised"),
    "traced by a child": ("r, w = os.pipe()\nme = os.getpid()\n" + SLEEPER.format("libc.ptrace(16, me, 0, 0); os.write(w, b'x')") + "os.read(r, 1)\nos._exit(3)", "crashed timeout"),
    "seized by a child": ("r, w = os.pipe()\nme = os.getpid()\n" + SLEEPER.format("libc.ptrace(0x4206, me, 0, 0); os.write(w, b'x')") + "os.read(r, 1)\nos._exit(3)", "crashed timeout"),
    "a child outlives it": (SLEEPER.format("os.setsid()") + "os._exit(5)", "crashed"),
    "a stopped child outlives it": (SLEEPER.format("os.kill(os.getpid(), signal.SIGSTOP)") + "os._exit(5)", "crashed"),
    "double fork": (SLEEPER.format("os.setsid()\n    if os.fork(): os._exit(0)") + "os._exit(5)", "crashed"),
    "its child goes on": ("if os.fork(): os._exit(5)", "crashed"),
    "both go on": ("os.fork()", "passed"),
    "fork bomb": ("for _ in range(40):\n    try:\n        if os.fork() == 0: time.sleep(47)\n    except OSError: pass\nos._exit(4)", "crashed timeout"),
    "sleepers by exec": ("for _ in range(3): subprocess.Popen(['/bin/sleep', '47'], start_new_session=True)\nos._exit(4)", "crashed timeout"),
    "exec": ("os.execv('/bin/sh', ['sh', '-c', 'exit 77'])", "crashed"),
    "exec of what stays": ("os.execv('/bin/sleep', ['sleep', '47'])", "timeout"),
    "children ignored": ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "passed"),
    "children awaited": ("signal.signal(signal.SIGCHLD, lambda *a: os.wait())", "passed"),
    "handler that raises": ("def h(*a): raise ValueError\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, 0.03, 0.005)", "passed raised"),
    "alarm": ("signal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(1)", "crashed passed"),
    "no descriptors": ("os.closerange(0, 256)", "crashed"),
    "other descriptors": ("r, w = os.pipe()\nfor fd in range(3, 64): os.dup2(w, fd)", "crashed"),
    "part of a frame": ("for fd in range(3, 64):\n    try: os.write(fd, b'\\0\\x10\\0\\0V')\n    except OSError: pass\nos._exit(1)", "crashed"),
    "much output": ("os.write(1, b'x' * (3 << 20))\nos._exit(1)", "crashed"),
    "spoils its output": ("import fcntl\nfcntl.fcntl(1, fcntl.F_SETFL, 0)\nos.setxattr(1, 'user.a', b'1')\nos.write(1, b'x' * (3 << 20))\nos._exit(1)", "crashed raised"),
    "no more descriptors": ("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))", "passed raised crashed"),
    "no more processes": ("import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))", "passed raised crashed"),
    "a trace of everything": ("def t(*_): raise ValueError\nsys.settrace(t)", "passed raised crashed"),
    "attributes of its folder": ("os.setxattr('.', 'user.a', b'1')\nos.utime('.', (1, 1))\nos._exit(1)", "crashed raised"),
    "a full folder": ("for i in range(9999): open(str(i), 'w').close()\nos._exit(1)", "crashed raised timeout"),
    "no way into its folder": ("os.chmod('.', 0)", "passed raised"),
    "deep folders": ("for _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')", "passed raised"),
    "file limit": ("signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nwith open('big', 'wb', 0) as file:\n    for _ in range(9): file.write(bytes(1 << 20))", "crashed raised passed output_limit"),
    "killed for memory": ("for _ in range(6):\n    if os.fork() == 0:\n        a = [bytearray(b'x' * (50 << 20)) for _ in range(6)]\n        time.sleep(47)\nos.wait()\nos._exit(2)", "crashed timeout memory"),
}  # fmt: skip


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def in_a_call(body: str) -> str:
    return f"{HEAD}def g(*_):\n{indented(body)}def f(x):\n    if x == 1: g()\n    return x + 1\n"


def at_load(body: str) -> str:
    return f"{HEAD}def g(*_):\n{indented(body)}g()\ndef f(x): return x + 1\n"
