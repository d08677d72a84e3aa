"""A mail server (RFC 5321) with STARTTLS, or TLS from the first byte, and a login: keeps what is handed in."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Self

from tests.services.certificates import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedInMail:
    """One message, as it came after DATA, without the dots that RFC 5321 doubles."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    #: "user:password", if there was a login.
    login: str
    is_encrypted: bool


class MailServer:
    """Private to one test; on a free port of the loopback."""

    def __init__(self, certificate: Certificate | None, *, is_tls_at_once: bool = False, login: str = "") -> None:
        """`certificate`: None: it offers no STARTTLS. `login`: "user:password" that it wants."""
        self.mails: list[HandedInMail] = []
        #: Command, or "rcpt ops@example.com", in lower case -> what is answered in place of success.
        self.answers: dict[str, str] = {}
        #: This command gets no answer until the test ends.
        self.hangs_at = ""
        #: Instead of an answer, this comes without end.
        self.floods_at = ""
        #: Instead of an answer, a byte comes now and then, and never a line's end.
        self.drips_at = ""
        self._ends = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler(certificate, is_tls_at_once, login))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="mail-server")
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self, certificate: Certificate | None, is_tls_at_once: bool, login: str) -> type[StreamRequestHandler]:
        mail_server = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # the client went away, or does not trust the certificate
                    _Session(mail_server, self.request, certificate, is_tls_at_once, login).run()

        return Handler


class _Server(ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True


class _Session:
    """One connection."""

    def __init__(
        self, server: MailServer, connection: socket.socket, certificate: Certificate | None, tls: bool, login: str
    ) -> None:
        self._server = server
        self._connection = connection
        self._certificate = certificate
        self._login = login
        self._known = ""
        self._is_encrypted = False
        self._sender = ""
        self._recipients: list[str] = []
        if tls:
            self._encrypt()
        self._file = self._connection.makefile("rb")

    def run(self) -> None:
        commands: Mapping[str, Callable[[str], None]] = {
            "ehlo": self._ehlo,
            "starttls": self._starttls,
            "auth": self._auth,
            "mail": self._mail,
            "rcpt": self._rcpt,
            "data": self._data,
            "rset": lambda _: self._say("250 reset"),
        }
        try:
            self._answer("greeting", "220 mail.example.com")
            while line := self._file.readline().decode("ascii"):
                name, _, argument = line.strip().partition(" ")
                if name.lower() == "quit":
                    self._answer("quit", "221 bye")
                    return
                commands[name.lower()](argument)
        finally:
            self._file.close()
            self._connection.close()

    def _say(self, line: str) -> None:
        self._connection.sendall(f"{line}\r\n".encode("ascii"))

    def _answer(self, command: str, success: str) -> bool:
        """True: it succeeded."""
        name = command.partition(" ")[0]
        if name == self._server.hangs_at:
            self._server._ends.wait()
            raise ConnectionResetError
        while name == self._server.drips_at and not self._server._ends.wait(0.02):
            self._connection.sendall(b"2")
        while name == self._server.floods_at:
            self._say("250-and so on")
        line = self._server.answers.get(command) or self._server.answers.get(name, success)
        self._say(line)
        return line == success

    def _encrypt(self) -> None:
        assert self._certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate.certificate, self._certificate.key)
        self._connection = context.wrap_socket(self._connection, server_side=True)
        self._is_encrypted = True

    def _ehlo(self, _argument: str) -> None:
        self._say("250-mail.example.com")
        if self._certificate is not None and not self._is_encrypted:
            self._say("250-STARTTLS")
        if self._login and self._is_encrypted:
            self._say("250-AUTH PLAIN")
        self._answer("ehlo", "250 8BITMIME")

    def _starttls(self, _argument: str) -> None:
        if self._answer("starttls", "220 go ahead"):
            self._file.close()
            self._encrypt()
            self._file = self._connection.makefile("rb")

    def _auth(self, argument: str) -> None:
        words = base64.b64decode(argument.removeprefix("PLAIN ")).decode()
        self._known = ":".join(words.split("\0")[1:])
        if self._known == self._login:
            self._answer("auth", "235 welcome")
        else:
            self._say(f"535 5.7.8 {self._known} is not known here")

    def _mail(self, argument: str) -> None:
        self._sender, self._recipients = _address(argument), []
        self._answer("mail", "250 sender ok")

    def _rcpt(self, argument: str) -> None:
        if self._answer(f"rcpt {_address(argument)}", "250 recipient ok"):
            self._recipients.append(_address(argument))

    def _data(self, _argument: str) -> None:
        self._say("354 go on")
        lines = []
        while (line := self._file.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        mail = HandedInMail(
            sender=self._sender,
            recipients=tuple(self._recipients),
            content=b"".join(lines),
            login=self._known,
            is_encrypted=self._is_encrypted,
        )
        if self._answer("data", "250 taken"):
            self._server.mails.append(mail)


def _address(argument: str) -> str:
    return argument.partition("<")[2].partition(">")[0].lower()
