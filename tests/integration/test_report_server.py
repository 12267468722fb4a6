"""`sut-report --serve`: whom it answers, what it refuses, and the page that asks it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.cli._report_server import Server, hosts_of
from tests.browser import Browser, find_chromium
from tests.integration.commands import start

INJECTED = "</script><img/src=x/onerror=canary=1>"


@pytest.fixture(scope="module")
def port(trained: Path, data: Path) -> Iterator[int]:
    """Where the command serves; at the end it is interrupted, and ends in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    options = ("--path", trained, "--data", data, "--serve", number)
    options += ("--thresholds", 0.4, 0.999, "--max-len", 9)
    with start("sut-report", *options, own_group=True) as running:
        assert running.wait_for(lambda: running.stdout.endswith("\n")), running.stderr[-2000:]
        assert running.stdout == f"http://127.0.0.1:{number}/\n"
        yield number
        os.kill(running.pid, signal.SIGINT)
        finished = running.finished(ok=False)
    assert finished.status == 130
    assert re.search(
        r"this machine alone; Ctrl-C ends\.\n(.*\n)?sut-report: interrupted\.\n$", finished.stderr
    )


def call(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, content and headers of a reply; `_` stands for - in the names of headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=given)
        reply = connection.getresponse()
        content = reply.read().decode()
        found = {name.lower(): value for name, value in reply.getheaders()}
    finally:
        connection.close()
    return reply.status, json.loads(content) if "json" in found["content-type"] else content, found


def ask(port: int, request: object, **headers: str) -> tuple[int, Any]:
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    status, found, _ = call(
        port, "POST", "/ask", body, **{"Content_Type": "application/json", **headers}
    )
    return status, found


def test_a_sentence_is_answered_at_a_threshold(port: int) -> None:
    depths = []
    for threshold in (0.4, 0.999):
        status, found = ask(port, {"text": "turn left", "threshold": threshold})
        assert status == 200 and found["words"] == [["turn"], ["left"], ["</s>"]]
        answer = found["answer"]
        assert answer["threshold"] == threshold and answer["macs"] > 0
        depths.append(sum(answer["stacks"]["decoder"]["depth"]) / len(answer["words"]))
    assert depths == [1.0, 3.0]


def test_the_page_is_for_this_machine_and_its_own_name(port: int) -> None:
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        status, page, headers = call(port, "GET", "/", Host=host)
        assert status == 200 and page.startswith("<!doctype html>")
        assert headers["content-security-policy"] == "frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
    # A name that someone else has pointed at this address (DNS rebinding).
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil", ""):
        status, found, _ = call(port, "GET", "/", Host=host)
        assert (status, found) == (403, {"error": "only this server's own page may ask."})
        assert ask(port, {"text": "turn", "threshold": 0.4}, Host=host)[0] == 403
    assert call(port, "GET", "/ask")[0] == call(port, "GET", "/../etc/passwd")[0] == 404


def test_browsers_leave_the_usual_port_out() -> None:
    assert hosts_of(8517) == {"127.0.0.1:8517", "localhost:8517"}
    assert hosts_of(80) == {"127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"}


def test_it_listens_on_one_address(port: int) -> None:
    """127.0.0.2 is this machine too, as every address of a network card would be."""
    for address in ("127.0.0.2", "127.1.2.3"):
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=5):  # noqa: PT011
            pass


def test_other_pages_cannot_ask(port: int) -> None:
    request = {"text": "turn left", "threshold": 0.4}
    own = f"http://127.0.0.1:{port}"
    assert ask(port, request, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{port}"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert ask(port, request, **headers)[0] == 403
    # What a form of another page can send without asking first.
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ):
        assert ask(port, request, Content_Type=kind)[0] == 415
    assert call(port, "OPTIONS", "/ask")[0] == 501


REFUSED: dict[str, tuple[object, int, str]] = {
    "no words": ({"text": " ", "threshold": 0.4}, 400, "at least one word"),
    "characters": ({"text": "a" * 1001, "threshold": 0.4}, 400, "at most 1,000 characters long"),
    "tokens": ({"text": "a " * 400, "threshold": 0.4}, 400, "at most 200 tokens long"),
    "bytes": (b'"' + b"a" * 9000, 413, "too long"),
    "no threshold": ({"text": "turn"}, 400, "`threshold` must be a number greater than 0"),
    "threshold 0": ({"text": "turn", "threshold": 0}, 400, "`threshold` must be"),
    "threshold 2": ({"text": "turn", "threshold": 2}, 400, "`threshold` must be"),
    "threshold NaN": (b'{"text": "turn", "threshold": NaN}', 400, "`threshold` must be"),
    "threshold true": ({"text": "turn", "threshold": True}, 400, "`threshold` must be"),
    "no text": ({"threshold": 0.4}, 400, "`text` must be a text"),
    "numbers": ({"text": 3, "threshold": 0.4}, 400, "`text` must be a text"),
    "a list": ([], 400, "`the request` must be an object"),
    "no JSON": (b"turn left", 400, "the request is not JSON"),
    "nested": (b"[" * 8000, 400, "the request is not JSON"),
    "a great number": (b'{"text": "turn", "threshold": ' + b"9" * 5000 + b"}", 400, "is not JSON"),
    "no UTF-8": (b'"\xff"', 400, "the request is not JSON"),
    "half a character": (b'{"text": "\\ud800", "threshold": 0.4}', 400, "is not Unicode text"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_sentence_is_refused_in_one(port: int, kind: str) -> None:
    request, expected, message = REFUSED[kind]
    status, found = ask(port, request)
    assert (status, list(found)) == (expected, ["error"]) and message in found["error"]
    assert ask(port, {"text": "turn", "threshold": 0.4})[0] == 200  # it is still there


def test_an_answer_that_fails_is_told() -> None:
    """As with Moses data where sacremoses is not installed, and of the model's own errors."""
    for error in (ModuleNotFoundError("No module named 'x'"), ValueError("of torch")):

        class Broken:
            alpha_threshold = None

            def sentence(self, text: str, error: Exception = error) -> None:
                raise error

        with Server(0, Broken()) as server:  # type: ignore[arg-type]
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            status, found = ask(server.server_port, {"text": "turn left"})
            server.shutdown()
            thread.join()
        expected = f"the model could not answer ({type(error).__name__}: {error})."
        assert (status, found) == (500, {"error": expected})


def test_a_length_must_be_given_and_kept(port: int) -> None:
    given = {"": b"411", "x": b"411", "-5": b"411", "9" * 12: b"413", "9" * 5000: b"413"}
    for length, status in given.items():
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(
                f"POST /ask HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()
            )
            assert connection.recv(100).split()[1] == status


@pytest.mark.browser
def test_typing_a_sentence_and_moving_the_slider(port: int) -> None:
    program = find_chromium()
    assert program is not None
    with Browser(program) as browser:
        address = f"http://127.0.0.1:{port}/"
        browser.open(address, width=390, height=800)
        assert browser.run("document.querySelectorAll('.token').length") == 0
        browser.run("document.getElementById('text').focus()")
        browser.type("turn left")
        browser.press("Enter")
        browser.wait("document.getElementById('answer')")
        bars = "[...document.querySelectorAll('.bars > span > span')]"
        browser.wait(f"{bars}.length && {bars}.every((bar) => bar.style.height !== '0px')")
        browser.wait("!document.getElementById('status').textContent")
        answers = {
            threshold: ask(port, {"text": "turn left", "threshold": threshold})[1]["answer"]
            for threshold in (0.4, 0.999)
        }
        for key, threshold in (("Home", 0.4), ("End", 0.999)):
            browser.run("document.getElementById('threshold').focus()")
            browser.press(key)
            assert (
                browser.run("document.getElementById('answer').textContent")
                == answers[threshold]["text"]
            )
            counts = (
                "[...document.querySelectorAll('.decoder .count')].map((one) => +one.textContent)"
            )
            assert browser.run(counts) == answers[threshold]["stacks"]["decoder"]["depth"]

        browser.run("const area = document.getElementById('text'); area.value = ''; area.focus()")
        browser.type(f"{INJECTED} left")
        browser.press("Enter")
        browser.wait("document.querySelector('.tokens .word')?.textContent.startsWith('</script>')")
        assert browser.run("document.querySelector('.tokens .word').textContent") == INJECTED
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.run("typeof canary") == "undefined"
        assert browser.run("document.querySelectorAll('.sentences input').length") == 2
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []

        browser.run("document.getElementById('text').value = 'a '.repeat(400)")
        browser.run("document.getElementById('text').focus()")
        browser.press("Enter")
        browser.wait("document.querySelector('.problem')")
        assert "at most 200 tokens long, but is 401" in browser.run(
            "document.querySelector('.problem').textContent"
        )
        # The sentence that nobody can answer is gone, the others are still there.
        assert browser.run("document.querySelectorAll('.sentences input').length") == 2
        assert browser.run("document.querySelectorAll('.token').length") > 0
        assert {url.rpartition("/")[0] + "/" for url in browser.requests if url[:5] != "data:"} == {
            address
        }


def test_a_port_that_is_taken(
    trained: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sut_fairseq.cli import report

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        line = ["--path", str(trained), "--data", str(data), "--serve", str(number)]
        assert report.main([*line, "--max-sentences", "2"]) == 2
    assert f"port {number} cannot be used" in capsys.readouterr().err
