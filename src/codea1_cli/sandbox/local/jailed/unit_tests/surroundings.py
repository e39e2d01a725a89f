"""The surroundings that BigCodeBench's checker gives to a program, made anew in the process that runs one module.

What is imitated is what a test can notice: standard streams in memory that cannot be read, subprocess output captured
unless asked otherwise, signals only to own children, no `exit`, `exec` and `os.system` that do nothing useful.
Standard library only.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import subprocess
import sys


class _Sink(io.StringIO):
    """Takes what is written; reading fails."""

    def read(self, *_args):
        raise OSError

    readline = readlines = read

    def readable(self) -> bool:
        return False


def settle(folder: str) -> None:
    """Moves into an empty folder below `folder`, if there is one, and puts all of it in place."""
    if folder:
        os.mkdir(folder + "/task")
        os.chdir(folder + "/task")
    sys.stdin = sys.stdout = sys.stderr = _Sink()
    vars(builtins).update(exit=None, quit=None)
    signal.signal(signal.SIGALRM, _late)
    _keep_to_own(set())


def _late(_number, _frame):
    raise TimeoutError("Timed out!")


def _keep_to_own(own: set) -> None:
    """Signals and waits reach `own` alone, the processes that the program started."""
    kill, killpg, popen, run = os.kill, os.killpg, subprocess.Popen, subprocess.run
    call, check_output, me = subprocess.call, subprocess.check_output, os.getpid()

    def safe_kill(pid, number):
        if pid == me or pid in own:
            kill(pid, number)

    def safe_killpg(group, number):
        if group == os.getpgid(me) or group in own:
            killpg(group, number)

    class Popen(popen):  # type: ignore[misc,valid-type]
        def __init__(self, *args, **kwargs):
            kwargs["preexec_fn"] = os.setsid
            super().__init__(*args, **kwargs)
            own.add(self.pid)

        def communicate(self, *args, **kwargs):
            try:
                return super().communicate(*args, **kwargs)
            except subprocess.TimeoutExpired:
                return None, None

        def kill(self):
            safe_kill(self.pid, signal.SIGTERM)

        terminate = kill

    def captured(kwargs: dict) -> dict:
        if kwargs.get("capture_output"):
            kwargs.pop("stdout", None)
            kwargs.pop("stderr", None)
        else:
            kwargs.setdefault("stdout", subprocess.PIPE)
            kwargs.setdefault("stderr", subprocess.PIPE)
        return kwargs

    def safe_popen(*args, **kwargs):
        return Popen(*args, **captured(kwargs))

    def safe_run(*args, **kwargs):
        kwargs = captured(kwargs)
        if "kill" in args[0] or "killall" in args[0]:
            return subprocess.CompletedProcess(args, 0, b"", b"")
        return run(*args, **kwargs)

    def safe_call(command, *args, **kwargs):
        return 0 if "kill" in command or "killall" in command else call(command, *args, **kwargs)

    def safe_check_output(command, *args, **kwargs):
        return b"" if "ps" in command else check_output(command, *args, **kwargs)

    def no_system(command):
        if "kill" in command:
            return 0
        raise NameError("os.system is not available: use subprocess")

    def no_exec(*_args, **_kwargs):
        return None

    vars(os).update(kill=safe_kill, killpg=safe_killpg, system=no_system)
    vars(os).update(execv=no_exec, execvp=no_exec, execvpe=no_exec)
    vars(subprocess).update(Popen=safe_popen, run=safe_run, call=safe_call, check_output=safe_check_output)
