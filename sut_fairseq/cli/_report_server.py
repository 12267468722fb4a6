"""Serves a page to the machine that it runs on, and answers what is typed there.

Other machines cannot reach it, because it listens on 127.0.0.1. Nor can other pages in the same
browser. A request must name this server as its `Host`: under DNS rebinding it names another one. If
the browser states where the request comes from, that must be a page of this server. The body must
be JSON, which another page cannot send without a CORS preflight.
"""

from __future__ import annotations

import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sut_fairseq.analysis.page.answers import answer_record, sentence_record
from sut_fairseq.analysis.sentences import Reader
from sut_fairseq.cli._page import to_json
from sut_fairseq.errors import InputError, check

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
_USUAL_PORT = 80  # which browsers leave out

MOST_CHARACTERS = 1_000
MOST_TOKENS = 200  # attention maps grow with the square
_MOST_BYTES = 8 * MOST_CHARACTERS  # of a request
_MOST_DIGITS = 12  # of its length
_MOST_WAITING = 8  # requests that are computed or wait for it
_SECONDS = 10.0  # after which a client that sends nothing is cut off

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    # The page itself says which scripts may run, but it cannot say who may show it in a frame.
    "Content-Security-Policy": "frame-ancestors 'none'",
}


def hosts_of(port: int) -> set[str]:
    """The `Host` values by which a browser may address this server."""
    return {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == _USUAL_PORT else set())


def limits(reader: Reader) -> dict[str, Any]:
    """What the page has to know about the requests that it may send, and about the answers."""
    stacks = [shape.stack for shape in reader.shapes.values() if shape.stack is not None]
    gates = any(hasattr(stack.block, "copy_gate") for stack in stacks)
    return {"characters": MOST_CHARACTERS, "gates": gates}


class Server(ThreadingHTTPServer):
    """Serves a page, and answers with the model behind it.

    Args:
        port: to listen on; 0: any free one.
        reader: answers the requests.

    Raises:
        InputError: if the port is taken or not allowed.
    """

    def __init__(self, port: int, reader: Reader) -> None:
        self.page = ""
        self.reader = reader
        self.one_at_a_time = threading.Lock()
        self.room = threading.BoundedSemaphore(_MOST_WAITING)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be used ({error.strerror}): give --serve another one."
            ) from error

    def answer(self, request: Any) -> dict[str, Any]:
        """The model's answer to a request `{"text": ..., "threshold": ...}`.

        Raises:
            InputError: if the request has another form, or exceeds a limit.
        """
        check(isinstance(request, dict), "the request", "an object", type(request).__name__)
        text, threshold = request.get("text"), request.get("threshold")
        check(isinstance(text, str), "text", "a text", type(text).__name__)
        requirement = f"at most {MOST_CHARACTERS:,} characters long"
        check(len(text) <= MOST_CHARACTERS, "sentence", requirement, len(text))
        halts = self.reader.alpha_threshold is not None
        if halts:
            number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
            requirement = "a number greater than 0, at most 1"
            check(number and 0 < threshold <= 1, "threshold", requirement, repr(threshold)[:20])
        with self.one_at_a_time:
            sentence = self.reader.sentence(text)
            length, requirement = len(sentence.words), f"at most {MOST_TOKENS} tokens long"
            check(length <= MOST_TOKENS, "sentence", requirement, length)
            answered = self.reader.ask(sentence, float(threshold) if halts else None)
        return {**sentence_record(sentence), "answer": answer_record(answered)}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or time out; report anything else, which is a bug."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SECONDS
    server_version, sys_version = "sut-report", ""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        if not self._is_ours():
            return
        if self.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is only one page, at /.")
            return
        self._reply(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:  # noqa: N802
        if not self._is_ours():
            return
        if self.path != "/ask":
            self._refuse(HTTPStatus.NOT_FOUND, "sentences are asked at /ask.")
            return
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the request must be JSON.")
            return
        length = self._length()
        if length is None:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the request must say its length.")
            return
        if length > _MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long.")
            return
        try:
            request = json.loads(self._body())
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not JSON.")
            return
        if not self.server.room.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many sentences at once: wait a bit.")
            return
        try:
            found = self.server.answer(request)
        except InputError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            reason = f"the model could not answer ({type(error).__name__}: {error})."
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, " ".join(reason.split()))
        else:
            self._reply(HTTPStatus.OK, "application/json", to_json(found))
        finally:
            self.server.room.release()

    def _is_ours(self) -> bool:
        """Whether the request is for this server and from its own page; if not, it is refused.

        `Sec-Fetch-Site` does not matter for reading the page: users may click a link to it.
        """
        hosts = hosts_of(self.server.server_port)
        origin = self.headers.get("Origin")
        ours = self.headers.get("Host", "").lower() in hosts
        ours = ours and (origin is None or origin.lower() in {f"http://{host}" for host in hosts})
        if self.command != "GET":
            ours = ours and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not ours:
            self._refuse(HTTPStatus.FORBIDDEN, "only this server's own page may ask.")
        return ours

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._body()  # a client that is cut off while it sends would not see the reply
        self.close_connection = True
        self._reply(status, "application/json", to_json({"error": reason}))

    def _body(self) -> bytes:
        """The unread body of the request; empty if it is far too long."""
        length = self._length()
        del self.headers["Content-Length"]  # it is read once
        if length is None or length > 4 * _MOST_BYTES:
            return b""
        return self.rfile.read(length)

    def _length(self) -> int | None:
        """The length in bytes that the request declares; None if it declares none."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return None
        # Python refuses to parse a number of thousands of digits.
        return int(length) if len(length) <= _MOST_DIGITS else sys.maxsize

    def _reply(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: what users type does not belong in a log."""
