"""Models: finding, loading and sampling them. Here: the options of a command that samples from a server, where that is,
and what its answers hold; `server.py` asks it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any
from urllib.parse import urlsplit

from typer import Option

from codea1_cli.errors import UserError, counted, did_you_mean
from codea1_cli.files import Broken, decode_json
from codea1_cli.network import NoResponse, Response, check_address

KEY, TEST_KEY = "CODEA1_SERVER_KEY", "CODEA1_TEST_SERVER_KEY"
"""The variables that hold a server's key; the second one's is for another server that writes tests."""
_OF_VLLM = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
NEUTRAL: dict[str, dict[str, float]] = {
    "vllm": _OF_VLLM,
    "sglang": _OF_VLLM,
    "llamacpp": {"top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0},
}
"""By who says to own a model: parameters beyond OpenAI's with which the server's own settings change no probability."""
_OF_OPENAI = ("temperature", "top_p", "max_tokens", "seed", "stop", "n")
TOKENS = ("prompt_tokens", "completion_tokens")
NO_CONTENT = "no_content"
"""What ended a reply that holds no text, but for the server's reasoning perhaps."""
PARAMETERS = tuple(dict.fromkeys((*_OF_OPENAI, *(name for more in NEUTRAL.values() for name in more))))


@dataclass(frozen=True)
class ServerOptions:
    """The options of a command that can sample from a server. `spent` counts what all of its servers did."""

    server: Annotated[
        str | None,
        Option(metavar="URL", help=f"Sample from an OpenAI-compatible server, http://HOST:PORT/v1; its key is {KEY}."),
    ] = None
    concurrency: Annotated[int, Option(min=1, max=1024, help="Requests at once.")] = 16
    max_requests: Annotated[
        int | None, Option(min=1, help="Stop before sending more; what came is kept, the same command goes on.")
    ] = None
    omit: Annotated[
        list[str] | None, Option(metavar="NAME", help="A parameter that the server does not take; repeat it.")
    ] = None
    patience: Annotated[
        float, Option(min=0.1, help="Seconds that an answer may take, and that an outage is waited for.")
    ] = 600.0
    spent: Counter[str] = field(default_factory=Counter, init=False, compare=False, repr=False)

    def find(self, engine: str = "auto", needed: bool = True) -> Server | None:
        """The server that is named, if any. engine: the local one that is asked for; needed: no other server is named.

        Raises:
            UserError: as `at`, or an option would have no effect.
        """
        if self.server is not None and engine != "auto":
            raise UserError(f"--engine {engine} has no effect with --server", "the server has its own")
        if self.server is None and needed and self != ServerOptions():
            names = (f.name for f in fields(self) if f.compare and getattr(self, f.name) != f.default)
            raise UserError(f"without --server there is no use for --{next(names).replace('_', '-')}")
        return None if self.server is None else self.at(self.server)

    def told(self, note: Callable[[str], None]) -> dict[str, Any]:
        """Says by `note` what the servers did, and gives it for a JSON document: nothing where none was asked."""
        if self.spent:
            note(f"the server: {spent_text(self.spent)}")
        return {"server": self.spent} if self.spent else {}

    def at(self, url: str, key: str = KEY) -> Server:
        """The server at an address; key: the variable with its key.

        Raises:
            UserError: it is no address, or a parameter to omit is none.
        """
        for name in self.omit or ():
            if name not in PARAMETERS:
                hint = did_you_mean(name, PARAMETERS) or f"one of {', '.join(PARAMETERS)}"
                raise UserError(f"--omit {name}: no such parameter is sent", hint)
        found = check_address(url, "a server", "http://HOST:PORT/v1, and its key in " + key)
        base = re.sub(r"(/chat)?/completions$", "", found)
        if base != found:
            raise UserError(f"{found!r} is where a chat is asked, not the server's address", f"without it: {base}")
        return Server(found, self, key)


@dataclass(frozen=True)
class Server:
    """Where a model is served."""

    url: str
    options: ServerOptions
    key: str = KEY

    def identity(self) -> dict[str, Any]:
        """What samples depend on besides the model's name and the settings."""
        return {"server": self.url, "omit": sorted({*(self.options.omit or ())})}

    def secret(self) -> str:
        """The key; an empty text where there is none. That of the first server is sent to no other host.

        Raises:
            UserError: no header can hold it.
        """
        found = os.environ.get(self.key, "").strip()
        main = urlsplit(self.options.server or "")
        if not found and (main.scheme, main.netloc) == urlsplit(self.url)[:2]:
            found = os.environ.get(KEY, "").strip()
        if not (found.isascii() and found.isprintable()):
            raise UserError(f"the key in {self.key} cannot be sent: it holds more than printable ASCII")
        return found


def spent_text(spent: Mapping[str, float]) -> str:
    """What a server was asked and gave, for a line of text."""
    count = {name: int(number) for name, number in spent.items()}
    sampled, kept, vain = (count.get(name, 0) for name in ("sampled", "kept", "requests"))
    parts = [counted(count.get("requests", 0), "request")]
    parts += [f"{vain - sampled} in vain"] if vain > sampled else []
    parts += [f"{counted(kept, 'answer')} of earlier calls"] if kept else []
    tokens = f"{count.get('prompt_tokens', 0):,} prompt tokens, {count.get('completion_tokens', 0):,} sampled"
    tokens += f", those of {counted(untold, 'answer')} not told" if (untold := count.get("uncounted", 0)) else ""
    if silent := count.pop(f"ended_{NO_CONTENT}", 0):
        tokens += f"; {counted(silent, 'reply', 'replies')} without content: reasoning may need more --max-new-tokens"
    ends = [f"{name.removeprefix('ended_')} {number}" for name, number in count.items() if name.startswith("ended_")]
    return "; ".join([", ".join(parts), tokens, *([f"replies ended by {', '.join(ends)}"] if ends else [])])


def completion(answer: Response) -> dict[str, Any] | None:
    """The row to keep of a whole answer; None for one that is none at all.

    Raises:
        NoResponse: it is not what a server with OpenAI's API gives.
    """
    if answer.status != 200:
        return None
    told = decode_json(answer.body)
    if not isinstance(told, dict):
        raise _strange(answer, f"{told.why}, or cut off" if isinstance(told, Broken) else "no JSON object")
    choices = told.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _strange(answer, "an error" if told.get("error") else "without a choice")
    texts, ends = list[str](), list[str]()
    for one in choices:
        message = one.get("message") if isinstance(one, dict) else None
        text = (
            message.get("content") if isinstance(message, dict) else one.get("text") if isinstance(one, dict) else None
        )
        if not isinstance(text, str) and not (text is None and isinstance(message, dict)):
            kind = "no message" if text is None else f"a content that is {type(text).__name__}, no text"
            raise _strange(answer, f"a choice with {kind}")
        end = re.sub(r"\W+", "_", str(one.get("finish_reason")))[:24]
        thought = isinstance(message, dict) and any(message.get(name) for name in ("reasoning_content", "reasoning"))
        silent = text is None or (thought and not text)
        ends.append(NO_CONTENT if silent and end != "content_filter" else end)
        texts.append((text or "").encode("utf-8", "replace").decode())  # half a surrogate pair fits in no file
    return reply_row(texts, ends, told.get("usage"))


def _strange(answer: Response, what: str) -> NoResponse:
    return NoResponse("strange", f"it answers {answer.status} {answer.reason}, {what}: {answer.shown()}")


def reply_row(texts: list[str], finish: list[str], usage: Any) -> dict[str, Any]:
    """The row to keep of replies, what ended each, and the tokens that the server counts."""
    told = [usage.get(name) if isinstance(usage, dict) else None for name in TOKENS]
    counts = [count if isinstance(count, int) and 0 <= count < 1 << 40 else None for count in told]
    known = {name: count or 0 for name, count in zip(TOKENS, counts, strict=True)}
    return {"texts": texts, "finish": finish, **known, "uncounted": None in counts}
