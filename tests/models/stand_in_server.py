"""A small HTTP stand-in of a server with OpenAI's API, which can be told to misbehave in each way."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.listening import listening

Reply = tuple[int, dict[str, str], bytes]
DRIP: Reply = (200, {"Content-Length": "99999999"}, b"")
"""An answer that goes on until nobody reads it."""


def completion(*texts: str | None, finish: str = "stop", usage: Any = (7, 3), key: str = "message") -> Reply:
    """An answer with these replies."""
    told = {} if usage is None else {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}
    choices = [
        {"index": i, "finish_reason": finish, **({"text": text} if key == "text" else {key: {"content": text}})}
        for i, text in enumerate(texts)
    ]
    return 200, {}, json.dumps({"choices": choices, **told}).encode()


def refusal(status: int, message: str, **more: Any) -> Reply:
    """An error as OpenAI's API has it."""
    return status, {}, json.dumps({"error": {"message": message, **more}}).encode()


class StandIn:
    """`answer` makes of a request's body and number (from 1) what is sent back: a reply, or None to drop the connection.
    By default each choice is a text that its seed decides. `bodies` are those asked for, `headers` the last ones."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any], int], Reply | None] = self.usual
        self.owner, self.bodies, self.paths, self.headers = (
            "somebody",
            list[dict[str, Any]](),
            list[str](),
            dict[str, str](),
        )
        self.models: Reply | None = None
        self.running = self.most = 0
        self.lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.paths.append(self.path)
                listed = {"data": [{"id": "m", "owned_by": stand_in.owner}]}
                self.reply(stand_in.models or (200, {}, json.dumps(listed).encode()))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stand_in.lock:
                    stand_in.bodies.append(body)
                    stand_in.paths.append(self.path)
                    stand_in.headers = dict(self.headers)
                    number = len(stand_in.bodies)
                    stand_in.running += 1
                    stand_in.most = max(stand_in.most, stand_in.running)
                try:
                    answer = stand_in.answer(body, number)
                finally:
                    with stand_in.lock:  # before the answer: a client that has read it may ask again
                        stand_in.running -= 1
                if answer is not None:
                    self.reply(answer)

            def reply(self, answer: Reply) -> None:
                with suppress(OSError):  # the client has gone
                    self.send_response(answer[0])
                    for name, value in {"Content-Length": str(len(answer[2])), **answer[1]}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer[2])
                    while answer is DRIP:
                        self.wfile.write(b" ")
                        time.sleep(0.01)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # a connection that waits outside of it is tried again after a second

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def usual(self, body: dict[str, Any], number: int) -> Reply:
        """As many replies as were asked for."""
        key = "message" if "messages" in body else "text"
        return completion(*(f"{body.get('seed')}.{i}" for i in range(body.get("n", 1))), key=key)


@contextmanager
def stand_in_server() -> Iterator[StandIn]:
    """One that listens."""
    found = StandIn()
    with listening(found.server):
        yield found
