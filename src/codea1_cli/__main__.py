"""The command `codea1`: an interrupt ends it with its code from its first line to the end of the process."""

import os
import sys
from _signal import SIGINT, SIGTERM, signal  # built in: nothing is read from a disk before the handlers stand


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    for number in (SIGINT, SIGTERM):
        signal(number, lambda *_: os._exit(130))
    from codea1_cli.engine.shutdown import end_at_once, interrupts

    code = _run()
    with interrupts(lambda: None, end_at_once):  # everything is done
        _leave(code)


def _run() -> object:
    from codea1_cli.engine.shutdown import EXIT_INTERRUPTED, stoppable

    try:
        with stoppable():
            from codea1_cli import cli

            cli.main()
    except SystemExit as end:
        return end.code or 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _leave(code: object) -> None:
    """Ends here: as the interpreter shuts down, signals have their defaults back, and threads of libraries that were
    interrupted may crash."""
    import atexit
    import contextlib

    if code != 130:
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main()
