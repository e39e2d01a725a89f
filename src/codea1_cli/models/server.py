"""Sampling from a server with OpenAI's API (vLLM's, llama.cpp's, a hosted one), the third engine of `models.sampler`.

A prompt is a chat, which the server renders, or a text that it goes on with. A reply is kept in a file as soon as it is
there, under what was asked, until what was sampled lies elsewhere: whatever ends a command, the next one asks for what
is missing. The key is sent to the server and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from codea1_cli.durable import append_row
from codea1_cli.errors import EnvironmentFault, Unreachable, UserError, counted
from codea1_cli.files import decode_json, kept_rows
from codea1_cli.models import NEUTRAL, NO_CONTENT, PARAMETERS, TOKENS, completion, reply_row
from codea1_cli.models.sampler import ModelRef, SamplingSettings, cut_at_stop, prompt_seed
from codea1_cli.network import Client, NoResponse, Response, one_line

_log = logging.getLogger(__name__)

_LARGEST = 32 << 20  # bytes of an answer
_STOPS = 4  # strings that OpenAI's API takes
_TOO_LONG = re.compile(r"context.{0,24}(?:length|size|window)|context_length|max_model_len|prompt is too long", re.I)


class ServerSampler:
    """Sends `concurrency` requests at once, each again after a failure that may pass.

    kept: the file of replies. spent: requests that were sent; answers sampled now, and kept by earlier calls; tokens of
    both, as the server counts them; replies by what ended them, where that is not the model itself.
    """

    tokenizer: Any = None

    def __init__(self, model: ModelRef, kept: Path) -> None:
        assert model.server is not None
        self.ref, self.server, self.options, self.kept = model, model.server, model.server.options, kept
        self.name, self.batch = f"the server at {self.server.url}", 8 * self.options.concurrency
        self.tokens, self.seconds, self.spent = 0, 0.0, Counter[str]()
        self._client = Client(self.server.url, self.server.secret())
        self._omit = frozenset(self.options.omit or ())
        self._single, self._longest = "n" in self._omit, "max_tokens"
        self._more: dict[str, float] | None = None  # the parameters of NEUTRAL, once it is known whose the server is
        self._fault: Exception | None = None  # the first one
        self._told = set[str]()
        self._guard, self._asking = threading.Lock(), threading.Lock()
        self._replies = {row["key"]: row for row in kept_rows(kept) if "key" in row}
        for row in self._replies.values():
            self._count(row, "kept")
        self.tokens = 0

    # -- what a sampler offers -----------------------------------------------------------------------------------------
    def generate(self, prompts: Sequence[list[Any]], settings: SamplingSettings) -> list[list[str]]:
        """`n` texts for each prompt; empty ones where the prompt and a reply are more than the model takes.

        Raises:
            UserError: the server refuses the key, the model or a parameter, or no prompt fits.
            EnvironmentFault: it does not answer, or `max_requests` is reached. What came is kept.
        """
        began, copies = time.monotonic(), 1 if settings.temperature == 0 else settings.n
        texts, unfit, silent, ending = [[""] * copies for _ in prompts], set[int](), False, None
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(self.options.concurrency, thread_name_prefix="server") as pool:
            waiting: dict[Future[tuple[list[str], str]], tuple[int, int, int]] = {}

            def ask(i: int, first: int, count: int) -> None:
                waiting[pool.submit(self._reply, prompts[i], settings, first, count)] = i, first, count

            try:
                for i in range(len(prompts)):
                    ask(i, 0, copies)
                while waiting:
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        i, first, count = waiting.pop(future)
                        got, end = future.result()
                        unfit |= {i} if end == "too_long" else set()
                        silent = silent or end == NO_CONTENT
                        texts[i][first : first + len(got)] = got
                        for number in range(first + len(got), first + count):
                            ask(i, number, 1)
            except BaseException as fault:
                pool.shutdown(wait=False, cancel_futures=True)
                ending = (isinstance(fault, Exception) and self._fault) or fault
                if not isinstance(fault, Exception):  # an interrupt: what is under way fails by it
                    self._client.close()
        if isinstance(ending, EnvironmentFault) and ending.hint == _GOES_ON:
            ending.hint = f"{counted(len(self._replies), 'answer')} kept: {_GOES_ON}"
        if ending is not None:
            raise ending from None
        self.seconds += time.monotonic() - began
        if len(unfit) == len(prompts) > 3:
            raise UserError(f"no prompt with its reply fits {self.name}", "lower --max-new-tokens")
        if silent and not any(any(row) for row in texts):
            hint = "a reasoning model spends its tokens before it answers: a larger --max-new-tokens, or no reasoning"
            raise UserError(
                f"none of {counted(copies * len(prompts), 'reply', 'replies')} of {self.name} has content", hint
            )
        if copies > 1 and copies * len(prompts) > 3 and all(len(set(row)) == 1 for row in texts):
            self._tell(f"the replies to each prompt are all equal: {self.name} may sample as it likes")
        return [[row[number % copies] for number in range(settings.n)] for row in texts]

    def describe(self) -> dict[str, Any]:
        """The model, its server, and the parameters that were left out and added."""
        more = {name: value for name, value in (self._more or {}).items() if name not in self._omit}
        about = {"model": self.ref.path, "label": self.ref.label, "engine": "server"}
        return {**about, **self.server.identity(), "added": more}

    def close(self) -> None:
        """Ends what is under way."""
        self._client.close()

    # -- a reply -------------------------------------------------------------------------------------------------------
    def _reply(self, prompt: list[Any], settings: SamplingSettings, first: int, count: int) -> tuple[list[str], str]:
        """Samples of a prompt from number `first` on, up to `count` and one at least; what ended the first of them."""
        wishes = []
        for number in dict.fromkeys((count, 1)):
            asked = _asked(prompt, settings, first, number)
            parts = [self.ref.path, self.server.identity(), asked]
            wishes.append((number, asked, hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]))
        row = next((self._replies[key] for _, _, key in wishes if key in self._replies), None)
        try:
            for number, asked, key in wishes:
                if row is None and (number == 1 or not self._single):
                    row = self._sampled(asked, key)
        except Exception as fault:
            self._fault = self._fault or fault
            self._client.stopped.set()  # requests under way may end, and their replies are kept
            raise
        assert row is not None
        if len(row["texts"]) < count:
            self._one_each()
        return [cut_at_stop(text, settings.stop) for text in row["texts"][:count]], row["finish"][0]

    def _one_each(self) -> None:
        if not self._single:
            self._tell(f"{self.name} gives one reply to a request: n samples of a prompt take n requests")
        self._single = True

    def _tell(self, words: str) -> None:
        with self._guard:
            fresh = words not in self._told
            self._told.add(words)
        if fresh:
            _log.warning("%s", words)

    def _count(self, row: dict[str, Any], how: str) -> None:
        self._add({how: 1, **{name: row[name] for name in TOKENS}, **({"uncounted": 1} if row["uncounted"] else {})})
        self._add(Counter(f"ended_{why}" for why in row["finish"] if why not in ("stop", "eos")))
        self.tokens += row["completion_tokens"]

    def _add(self, counts: Mapping[str, int]) -> None:
        for spent in (self.spent, self.options.spent):
            spent.update(counts)

    def _sampled(self, asked: dict[str, Any], key: str) -> dict[str, Any] | None:
        """The row of what the server replies, which is kept; None where it takes one sample of a request only."""
        with self._asking:
            if self._more is None:
                self._more = self._neutral()
        body = {"model": self.ref.path, **asked, **self._more}
        body = {name: value for name, value in body.items() if name not in self._omit}
        while True:
            if "max_tokens" in body:
                body[self._longest] = body.pop("max_tokens")
            row = self._send("completions" if "prompt" in body else "chat/completions", body, completion)
            if isinstance(row, Response):
                said, code, param = self._said(row)
                name = _named(said, param, body) if row.status in (400, 422) else None
                if (long := _TOO_LONG.search(f"{code} {said}")) or code == "content_filter":
                    ends = ["too_long" if long else code] * asked.get("n", 1)
                    row = reply_row([""] * len(ends), ends, dict.fromkeys(TOKENS, 0))
                elif name == "max_tokens" in body and "max_completion_tokens" in said:
                    self._longest = "max_completion_tokens"
                    continue
                elif name == "n":
                    self._one_each()
                    return None
                else:
                    raise self._error(row, said, name)
            with self._guard:
                if {*row["finish"]} != {NO_CONTENT}:  # a server that is set another way is to be asked again
                    append_row(self.kept, row | {"key": key})
                self._replies[key] = row
                self._count(row, "sampled")
            return row

    def _neutral(self) -> dict[str, float]:
        """What is to be sent besides OpenAI's parameters: by who the server says to be."""
        answer = self._send("models", None, lambda answer: answer)
        if answer.status in (401, 403):
            raise self._error(answer, self._said(answer)[0], None)
        told = decode_json(answer.body) if answer.status == 200 else None  # some have no list, or fail at it
        named = told.get("data") if isinstance(told, dict) else None
        listed = [model for model in named if isinstance(model, dict)] if isinstance(named, list) else []
        mine = [model for model in listed if model.get("id") == self.ref.path] or listed[:1]
        return NEUTRAL.get(str(mine[0].get("owned_by")), {}) if mine else {}

    # -- a request -----------------------------------------------------------------------------------------------------
    def _send(self, path: str, body: Mapping[str, Any] | None, read: Callable[[Response], Any]) -> Any:
        """What `read` makes of the answer, or the `Response` that refuses the request."""
        data = None if body is None else json.dumps(body).encode()

        def ask() -> Response:
            if body is not None:
                self._take()
            return self._client.ask(path, data, self.options.patience, _LARGEST)

        try:
            return self._client.insist(ask, read, self.options.patience)
        except NoResponse as fault:
            raise Unreachable(f"{self.name} gives no usable answer: {fault}", _GOES_ON, str(fault)) from None

    def _take(self) -> None:
        """Counts a request before it is sent."""
        most = self.options.max_requests
        with self._guard:
            if self._client.stopped.is_set():
                raise EnvironmentFault(f"{self.name} is asked nothing more", _GOES_ON)
            if most is not None and self.options.spent["requests"] >= most:
                raise EnvironmentFault(f"--max-requests {most} is reached, {self.name} is asked nothing more", _GOES_ON)
            self._add({"requests": 1})

    def _said(self, answer: Response) -> tuple[str, str, str]:
        """An error's text, one line that can be shown; its code; and the parameter that it names, if any."""
        found = decode_json(answer.body)
        error = found.get("error", found) if isinstance(found, dict) else {}
        error = error if isinstance(error, dict) else {"message": error}
        said = error.get("message") or error.get("detail") or answer.shown()
        text = self._client.hidden(said if isinstance(said, str) else json.dumps(said))
        return one_line(text[:2000], 300), str(error.get("code") or error.get("type") or ""), str(error.get("param"))

    def _error(self, answer: Response, said: str, name: str | None) -> UserError:
        """What a request comes to that another try would not help; name: the parameter that is refused."""
        key, status = self.server.key, answer.status
        said = said or f"{status} {answer.reason}, without a word"
        if 300 <= status < 400 and (there := answer.headers.get("Location")):
            there = one_line(self._client.hidden(urljoin(self.server.url + "/", there)), 200)
            base = re.sub(r"(/chat)?/(completions|models)$", "", there)
            what = f"{self.name} sends elsewhere: {status} {answer.reason}, to {there}"
            return UserError(what, f"where that is the server: {base} in place of its address")
        if name is not None:
            hint = f"another value; or --omit {name} leaves it out, and its value to the server"
            return UserError(f"{self.name} does not take {name}: {said}", hint)
        if status in (401, 403):
            who = "the key" if self.server.secret() else "whoever has no key"
            hint = f"{key}=KEY, in the environment" + "; or the key may not use this model" * (status == 403)
            return UserError(f"{self.name} refuses {who}: {said}", hint)
        if status in (404, 405):
            hint = f"the names that it knows: {self.server.url}/models; most addresses end in /v1"
            return UserError(f"{self.name} has no model {self.ref.path!r}, or is another kind of server: {said}", hint)
        return UserError(f"{self.name} refuses the request: {status} {answer.reason}: {said}")


_GOES_ON = "the same command goes on"


def _asked(prompt: list[Any], settings: SamplingSettings, first: int, count: int) -> dict[str, Any]:
    """The prompt of a request and its parameters, for the samples from number `first` on."""
    text = len(prompt) == 1 and isinstance(prompt[0], str)
    asked: dict[str, Any] = {"prompt": prompt[0]} if text else {"messages": prompt}
    asked |= {"temperature": settings.temperature, "max_tokens": settings.max_new_tokens}
    if settings.temperature > 0:
        asked["top_p"] = settings.top_p
    # 31 bits: llama.cpp and numpy take no larger seed.
    asked["seed"] = prompt_seed([json.dumps(prompt), first], settings.seed) >> 31
    if settings.stop:
        asked["stop"] = list(settings.stop[:_STOPS])
    return asked | ({"n": count} if count > 1 else {})


def _named(said: str, param: str, body: Mapping[str, Any]) -> str | None:
    """The parameter of a request that an error is about; the longest name goes by max_tokens."""
    sent = sorted((name for name in body if name in (*PARAMETERS, "max_completion_tokens")), key=len, reverse=True)
    for name in sent:
        quoted = name in ("n", "stop")  # which stand in other sentences too
        if param == name or re.search(rf"['\"`]{name}['\"`]" if quoted else rf"\b{name}\b", said):
            return "max_tokens" if name == "max_completion_tokens" else name
    return None
