"""Requests to a service that may be anything: each is whole within its time, no longer than it may be, and can be
ended.

The proxy is the one that the environment names for the address, none for this machine itself. A redirection is an
answer like another and is not followed: what was sent was meant for this address.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import logging
import math
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from codea1_cli.errors import UserError, first_line

_log = logging.getLogger(__name__)

_CONNECT_S = 10.0
_STRANGE = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_PASSING = {408, 409, 425, 429}  # statuses after which the same request may do, besides those from 500 on


class NoResponse(Exception):
    """There is no whole answer; `kind` is a word for it: timeout, refused, broken, large, closed,
    status for an answer that refuses, or strange for one that is none."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what[:300])
        self.kind = kind


@dataclass(frozen=True)
class Response:
    """What a service answers, whatever it is."""

    status: int
    reason: str
    headers: Message
    body: bytes

    def shown(self, characters: int = 200) -> str:
        """The beginning of the body, on one line."""
        return one_line(self.body[: 4 * characters].decode("utf-8", "replace"), characters)

    @property
    def passing(self) -> bool:
        """Whether the same request may have another answer later."""
        return self.status in _PASSING or self.status >= 500 or self.status < 300

    @property
    def wait_s(self) -> float:
        """The seconds that it asks to wait (Retry-After, a number or a date); 0 where it asks for none."""
        wish = self.headers.get("Retry-After") or ""
        try:
            seconds = float(wish)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(wish).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                return 0.0
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0


class Client:
    """Asks one address, `http(s)://HOST[:PORT][/PATH]`. Thread-safe: any number of requests may be under way. `key` is
    sent along, and hidden in what is said of answers.

    Raises:
        UserError: the environment names a proxy for it that is none.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self.address, self.proxy, self._key = address, proxy_for(address), key
        self.closed = self._failing = False
        self.stopped = threading.Event()
        """Set, nothing is asked again."""
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()

    @property
    def name(self) -> str:
        """The address, and the proxy on the way there."""
        by = f" (through the proxy {self.proxy.hostname}:{self.proxy.port or 80})" if self.proxy is not None else ""
        return f"{self.address}{by}"

    def hidden(self, text: str) -> str:
        """The text without the key, for a message."""
        return text.replace(self._key, "KEY") if self._key else text

    def ask(self, path: str, body: bytes | None, seconds: float, largest: int) -> Response:
        """The answer, of up to `largest` bytes, to a POST of the JSON `body` to ADDRESS/PATH; without one, to a GET.

        Raises:
            NoResponse: there is none within so many seconds.
        """
        connection, asked, more = _connection(self.address, path, self.proxy, min(seconds, _CONNECT_S))
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        headers |= ({} if body is None else {"Content-Type": "application/json"}) | more
        late, held = threading.Event(), list[socket.socket]()

        def end() -> None:
            late.set()
            for one in held:
                _shut(one)

        # A socket's own limit is one of each read: a byte per second would never meet it.
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            held.append(connection.sock)  # which the connection forgets when an answer is its last
            held[0].settimeout(seconds)
            with self._guard:
                self._sockets.update(held)
            try:
                if self.closed:
                    raise NoResponse("closed", "it is closed")
                connection.request("GET" if body is None else "POST", asked, body, headers)
                response = connection.getresponse()
                raw = response.read(largest + 1)
            finally:
                with self._guard:
                    self._sockets.difference_update(held)
        except TimeoutError:
            raise NoResponse("timeout", f"no answer within {seconds:.0f} s") from None
        except (OSError, http.client.HTTPException) as fault:
            if late.is_set():
                raise NoResponse("timeout", f"no whole answer within {seconds:.0f} s") from None
            what = getattr(fault, "strerror", None) or first_line(fault)
            raise NoResponse("refused" if isinstance(fault, ConnectionRefusedError) else "broken", what) from None
        finally:
            timer.cancel()
            connection.close()
        if late.is_set():  # a connection that ends is the end of some answers
            raise NoResponse("timeout", f"no whole answer within {seconds:.0f} s")
        if len(raw) > largest:
            raise NoResponse("large", f"its answer is longer than {largest} bytes")
        return Response(response.status, response.reason, response.headers, raw)

    def insist(self, ask: Callable[[], Response], read: Callable[[Response], Any], patience_s: float) -> Any:
        """What `read` makes of an answer, or a `Response` that refuses for good. As long as there is neither, it asks
        again after pauses that grow, or are as long as an answer wishes; what `read` cannot use (None, or a strange
        NoResponse, which says why) a few times.

        Raises:
            NoResponse: it has failed for `patience_s`, or would not be asked again within them; or it is stopped.
        """
        pause, since, strange = _FIRST_PAUSE_S, 0.0, 0
        while True:
            wanted, kind = 0.0, "status"
            try:
                answer = ask()
                found = read(answer)
                if found is not None or not answer.passing:
                    self._failing = False
                    return answer if found is None else found
                strange += answer.status < 300
                why, wanted = f"it answers {answer.status} {answer.reason}: {answer.shown()}", answer.wait_s
            except NoResponse as fault:
                why, kind = str(fault), fault.kind
                strange += kind == "strange"
                if kind in ("large", "closed"):
                    raise
            why = self.hidden(why + (f"; it asks to wait {wanted:.0f} s" if wanted else ""))
            now = time.monotonic()
            since = since or now
            pause_s = max(wanted, random.uniform(0.5, 1.0) * pause)
            if strange > _STRANGE or now + pause_s - since > patience_s or self.stopped.is_set():
                raise NoResponse(kind, why)
            if not self._failing:
                self._failing = True
                _log.warning("%s: %s; it is asked again for %.0f s", self.name, why, patience_s)
            if self.stopped.wait(pause_s):
                raise NoResponse(kind, why)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Ends the requests that are under way: they fail."""
        self.closed = True
        self.stopped.set()
        with self._guard:
            for one in self._sockets:
                _shut(one)


def one_line(text: str, characters: int) -> str:
    """The beginning of a text that anybody may have written, for a message."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:characters]


def check_address(address: str, service: str, hint: str) -> str:
    """The address without a slash at its end.

    Raises:
        UserError: it is not the address of a service, or holds a login.
    """
    found = address.strip()
    try:
        parts = urlsplit(found)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and found.isprintable()
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or " " in found:
        raise UserError(f"{found!r} is not the address of {service}", hint)
    if "@" in parts.netloc:
        raise UserError(
            f"the address of {service.removeprefix('a ')} at {parts.hostname} holds a login, and none is ever sent",
            f"{hint}, without USER:PASSWORD@",
        )
    return found.rstrip("/")


def proxy_for(endpoint: str) -> SplitResult | None:
    """The proxy that the usual variables name for an address: `http_proxy`, `https_proxy` or `all_proxy`, unless
    `no_proxy` names its host. None for this machine itself, whatever they say.

    Raises:
        UserError: it is not an HTTP proxy.
    """
    address = urlsplit(endpoint)
    proxies, host = getproxies_environment(), address.hostname or ""
    named = proxies.get(address.scheme) or proxies.get("all")
    if not named or _is_loopback(host) or proxy_bypass(address.netloc, proxies):
        return None
    found = urlsplit(named if "://" in named else f"http://{named}")
    with contextlib.suppress(ValueError):
        if found.scheme == "http" and found.hostname and found.port != 0:
            return found
    raise UserError(
        f"the proxy for {endpoint} cannot be used: {found.scheme}://{found.netloc.rpartition('@')[2]} is no HTTP proxy",
        f"set {address.scheme}_proxy to http://HOST:PORT, or name {host} in no_proxy",
    )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _connection(
    endpoint: str, path: str, proxy: SplitResult | None, seconds: float
) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """A connection to the service, not yet made, what to ask it for, and headers for a proxy on the way."""
    address, asked = urlsplit(endpoint), f"{urlsplit(endpoint).path}/{path}"
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    if proxy is None:
        return kind(address.hostname or "", address.port, timeout=seconds), asked, {}
    headers = {}
    if proxy.username is not None:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    connection = kind(proxy.hostname or "", proxy.port or 80, timeout=seconds)
    if address.scheme == "http":
        return connection, f"{endpoint}/{path}", headers
    connection.set_tunnel(address.hostname or "", address.port, headers)
    return connection, asked, {}


def _shut(held: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(held, socket.SHUT_RDWR)  # TLS's own would take a reader's state away
