"""Downloads from a server on this machine that breaks off, does not resume, or has another file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sut_data.errors import InputError
from sut_data.folders import download
from sut_data.folders.download import fetch

CONTENT = os.urandom(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file at every path but /absent; tests change what it holds and how it behaves."""

    content = CONTENT
    etag: str | None = '"1"'
    resumes = True
    breaks_after: int | None = None
    says_length = True
    claimed: str | None = None  # other than the real length
    drips = False  # a byte at a time

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str | None] = []  # their Range header

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:  # noqa: N802
        server, wanted = self.server, self.headers.get("Range")
        server.requests.append(wanted)
        if self.path == "/absent":
            self.send_error(404)
            return
        start = 0
        if wanted and server.resumes and self.headers.get("If-Range") == server.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            last = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(server.content)}")
        else:
            self.send_response(200)
        if server.etag:
            self.send_header("ETag", server.etag)
        body = server.content[start:]
        if server.says_length:
            self.send_header("Content-Length", str(server.claimed or len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for start in range(len(body) if server.drips else 0):
                self.wfile.write(body[start : start + 1])
                time.sleep(0.02)
            if not server.drips:
                self.wfile.write(body[: server.breaks_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture()
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture()
def file(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file"


def interrupt(server: Server, file: Path, after: int = 1_000_000) -> None:
    server.breaks_after = after
    with pytest.raises(InputError, match=f"ended after {after:,} of 3,145,728 bytes") as error:
        fetch(server.url, file, SHA256)
    assert "run the same command again" in str(error.value) and "\n" not in str(error.value)
    server.breaks_after = None
    assert not file.exists()


def test_a_file_is_downloaded_once(server: Server, file: Path) -> None:
    assert fetch(server.url, file, SHA256) == file
    assert file.read_bytes() == CONTENT
    assert os.listdir(file.parent) == ["file"]
    assert fetch(server.url, file, SHA256) == file
    assert server.requests == [None]


def test_an_interrupted_download_is_resumed(server: Server, file: Path) -> None:
    interrupt(server, file)
    assert fetch(server.url, file, SHA256).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000000-"]
    assert os.listdir(file.parent) == ["file"]


def test_without_resuming_it_starts_again(server: Server, file: Path) -> None:
    interrupt(server, file)
    server.resumes = False
    assert fetch(server.url, file, SHA256).read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("etag", ['"2"', None])
def test_two_versions_are_never_joined(server: Server, file: Path, etag: str | None) -> None:
    server.etag = etag and '"1"'
    interrupt(server, file)
    server.content, server.etag = b"changed" * 999_999, etag
    assert fetch(server.url, file, None).read_bytes() == server.content


def test_too_much_is_thrown_away(server: Server, file: Path) -> None:
    """All had arrived when the process was killed, or a longer file was there before."""
    interrupt(server, file)
    for surplus in (CONTENT, CONTENT + b"x"):
        (file.parent / "file.part").write_bytes(surplus)
        (file.parent / "file.part.version").write_text('"1"')
        assert fetch(server.url, file, SHA256).read_bytes() == CONTENT
        file.unlink()


def test_a_wrong_checksum_is_refused(server: Server, file: Path) -> None:
    server.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    for _ in range(2):
        with pytest.raises(InputError, match="differs from the official one"):
            fetch(server.url, file, SHA256)
        assert not os.listdir(file.parent)
    server.content = CONTENT
    fetch(server.url, file, SHA256)
    file.write_bytes(b"spoilt later")
    assert fetch(server.url, file, SHA256).read_bytes() == CONTENT


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["official", "recorded"])
def test_a_second_run_waits_for_the_first(
    server: Server,
    file: Path,
    sha256: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also while the first one only checks what has arrived."""
    checksum = download._checksum
    with ThreadPoolExecutor(1) as second:
        later: list[Future[Path]] = []

        def checked(path: Path, of_content: bool) -> str:
            if not later:
                later.append(second.submit(fetch, server.url, file, sha256))
                wait(later, timeout=0.2)
            return checksum(path, of_content)

        monkeypatch.setattr(download, "_checksum", checked)
        assert fetch(server.url, file, sha256).read_bytes() == CONTENT
        assert later[0].result(timeout=10).read_bytes() == CONTENT
    assert server.requests == [None]
    assert sorted(os.listdir(file.parent)) == ["file"] + ["file.sha256"] * (sha256 is None)
    assert capsys.readouterr().out.count(f"Another run is downloading {file}; waiting for it.") == 1


@pytest.mark.parametrize("says_length", [True, False])
def test_a_server_that_sends_too_much(
    server: Server, file: Path, monkeypatch: pytest.MonkeyPatch, says_length: bool
) -> None:
    """The disk is not filled with it, whether it says how much it will be or not."""
    monkeypatch.setattr(download, "LARGEST", 1 << 20)
    server.says_length = says_length
    with pytest.raises(InputError, match="is not the published file: it has .* bytes or more"):
        fetch(server.url, file, SHA256)
    assert not os.listdir(file.parent)


@pytest.mark.parametrize("claimed", ["1000000", "-5", "many", "99999999999999999999"])
def test_a_server_that_lies_about_the_length(server: Server, file: Path, claimed: str) -> None:
    server.claimed = claimed
    with pytest.raises(InputError) as error:
        fetch(server.url, file, SHA256)
    assert "\n" not in str(error.value) and not file.exists()


def test_a_server_that_sends_next_to_nothing(
    server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is kept, and a server that has recovered goes on from there."""
    monkeypatch.setattr(download, "TIMEOUT", 0.5)
    server.drips = True
    with pytest.raises(
        InputError, match=r"\(only [\d,]+ bytes came in \d+ seconds\): run the same"
    ):
        fetch(server.url, file, SHA256)
    server.drips = False
    assert fetch(server.url, file, SHA256).read_bytes() == CONTENT
    assert re.fullmatch(r"bytes=\d{1,3}-", server.requests[-1] or "")


def test_a_server_that_says_nothing_at_all(
    server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(InputError, match="could not be downloaded .*timed out"),
    ):
        fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/file", file, SHA256)


def test_a_page_instead_of_the_file(server: Server, file: Path) -> None:
    """As wireless networks answer before one has logged in."""
    server.content = b"<html>Please log in</html>"
    with pytest.raises(InputError, match="differs from the official one"):
        fetch(server.url, file, SHA256)
    assert not os.listdir(file.parent)


def test_without_an_official_checksum_the_first_is_kept(
    server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(server.url, file, None)
    assert f"SHA-256 {SHA256} (recorded" in capsys.readouterr().out
    record = file.parent / "file.sha256"
    assert record.read_text() == f"{SHA256}  file\n"
    fetch(server.url, file, None)
    assert len(server.requests) == 1
    file.unlink()
    server.content = b"another"
    with pytest.raises(InputError, match=r"differs from that of the first download"):
        fetch(server.url, file, None)
    assert os.listdir(file.parent) == ["file.sha256"]


def test_a_page_is_not_taken_for_the_first_archive(server: Server, file: Path) -> None:
    """Recorded, its checksum would refuse the right file from then on."""
    archive, whole = file.with_name("file.tgz"), gzip.compress(b"text")
    server.content = b"<html>Please log in</html>"
    with pytest.raises(InputError, match=r"is not an archive, whatever the server sent: try again"):
        fetch(server.url, archive, None)
    assert not os.listdir(file.parent)
    server.content = whole
    assert fetch(server.url, archive, None).read_bytes() == whole
    archive.unlink()
    server.content = gzip.compress(b"another")
    with pytest.raises(InputError, match=r"the wrong one, delete .*file\.tgz\.sha256\)"):
        fetch(server.url, archive, None)


def test_a_file_put_there_by_hand_is_recorded_only_if_it_is_an_archive(
    server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, whole = file.with_name("file.tgz"), gzip.compress(b"text")
    archive.parent.mkdir()
    archive.write_bytes(whole)
    assert fetch(server.url, archive, None).read_bytes() == whole
    assert sorted(os.listdir(file.parent)) == ["file.tgz", "file.tgz.sha256"]
    assert not server.requests
    archive.with_name("file.tgz.sha256").unlink()
    archive.write_bytes(b"<html>Please log in</html>")
    server.content = whole
    assert fetch(server.url, archive, None).read_bytes() == whole
    assert f"{archive} is not the file it should be" in capsys.readouterr().out


@pytest.mark.parametrize("record", [b"", b"\xff\xfe", b"<html>"])
def test_a_damaged_record_is_told(server: Server, file: Path, record: bytes) -> None:
    fetch(server.url, file, None)
    (file.parent / "file.sha256").write_bytes(record)
    with pytest.raises(InputError, match=r"file\.sha256 does not begin with a SHA-256: delete it"):
        fetch(server.url, file, None)


def test_the_checksum_may_be_that_of_the_content(server: Server, file: Path) -> None:
    server.content = gzip.compress(b"a\nb\n")
    right = hashlib.sha256(b"a\nb\n").hexdigest()
    assert fetch(server.url, file, right, of_content=True).read_bytes() == server.content
    server.content = b"no gzip"
    file.unlink()
    with pytest.raises(InputError, match="differs from the official one"):
        fetch(server.url, file, right, of_content=True)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("{}absent", "404 Not Found"),
        ("http://127.0.0.1:9/file", "Connection refused"),
        ("http://name.invalid/file", "Name or service not known|Temporary failure|No address"),
        ("no address", "unknown url type"),
    ],
)
def test_what_cannot_be_reached(server: Server, file: Path, address: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"could not be downloaded \(.*({reason})") as error:
        fetch(address.format(server.url.removesuffix("file")), file, None)
    assert re.search("give its folder with --raw", str(error.value))
    assert not file.exists()
