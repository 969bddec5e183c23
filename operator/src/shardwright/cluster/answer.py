"""One HTTP/1.1 answer out of the bytes of a connection.

Decides where an answer ends and whether its connection can carry another (RFC 9112, sections 6, 7 and 9).
Never touches a socket. Of the head only what frames the body is read at once: an answer of 200 is asked
for no other field.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_LONGEST_HEAD_BYTES: Final = 1 << 16
"""Of a head, of the line before a chunk and of a trailer; an API server's are below 1 KiB."""
_BODILESS: Final = frozenset({204, 304})
_PROTOCOL: Final = b"HTTP/1."
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class Headers(Mapping[str, str]):
    """Header fields by name in any case, split when the first one is asked for.

    Fields of one name are joined by a comma (RFC 9110, section 5.3). Names come out in lower case.
    """

    __slots__ = ("_fields", "_head")

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._fields: dict[str, str] | None = None

    def _split(self) -> dict[str, str]:
        if self._fields is None:
            self._fields = {}
            for line in self._head.decode("latin-1").split("\r\n")[1:]:
                name, colon, value = line.partition(":")
                if colon:
                    before = self._fields.get(name.lower())
                    value = value.strip()
                    self._fields[name.lower()] = value if before is None else f"{before}, {value}"
        return self._fields

    def __getitem__(self, name: str) -> str:
        return self._split()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._split())

    def __len__(self) -> int:
        return len(self._split())


class Answer(NamedTuple):
    """A whole answer, whatever its status."""

    status: int
    headers: Headers
    body: bytes


class AnswerReader:
    """Takes what arrives for one request until the answer is whole.

    `keeps` then says whether the connection can carry another request: not after an HTTP/1.0 answer or
    `Connection: close`, and not when more came than was asked for. The request must not have been HEAD.
    """

    __slots__ = ("_at", "_chunks", "_head", "_held", "_need", "_status", "keeps")

    def __init__(self) -> None:
        self._held: bytes | bytearray = b""
        self._at = 0
        """Where what has not been understood yet begins in `_held`."""
        self._need = 0
        """A look at fewer bytes than these is for nothing."""
        self._head: bytes | None = None
        self._status = 0
        self._chunks: list[bytes] | None = None
        self.keeps = False

    def feed(self, data: bytes) -> Answer | None:
        """Add what arrived. Gives the answer once it is whole; raises ValueError when it is none."""
        if not self._held:
            self._held = data
        else:
            if isinstance(self._held, bytes):
                self._held = bytearray(self._held)
            self._held += data
        if len(self._held) < self._need or (self._head is None and not self._read_head()):
            return None
        if self._chunks is not None:
            return self._read_chunks(self._chunks)
        if len(self._held) < self._need:
            return None
        return self._whole(bytes(self._held[self._at : self._need]), self._need)

    def _read_head(self) -> bool:
        """Read the head when it is there; interim answers before it (1xx) say nothing to us."""
        while True:
            end = self._held.find(b"\r\n\r\n", self._at)
            if end < 0:
                begun = bytes(self._held[self._at : self._at + len(_PROTOCOL)])
                if not _PROTOCOL.startswith(begun):
                    raise ValueError(f"not HTTP/1: {begun!r}")
                self._limit(self._at)
                return False
            head = bytes(self._held[self._at : end + 2])
            self._at = end + 4
            if not head.startswith(_PROTOCOL) or head[8:9] != b" " or not head[9:12].isdigit():
                raise ValueError(f"no status: {head[:80]!r}")
            self._status = int(head[9:12])
            if self._status == 101:
                raise ValueError("another protocol, which was not asked for")
            if self._status >= 200:
                self._head = head
                self._frame(head.lower())
                return True

    def _frame(self, head: bytes) -> None:
        """Say where the body ends, of a head in lower case."""
        self.keeps = head.startswith(b"http/1.1") and b"close" not in _value(head, b"\r\nconnection:")
        length = _value(head, b"\r\ncontent-length:")
        coding = _value(head, b"\r\ntransfer-encoding:")
        if self._status in _BODILESS:
            self._need = self._at
        elif coding == b"chunked" and not length:
            self._chunks = []
        elif length.isdigit() and not coding:
            self._need = self._at + int(length)
        else:
            # A body up to the end of the connection could be cut off without being noticed.
            raise ValueError(f"no length: {length.decode('latin-1')!r}, {coding.decode('latin-1')!r}")

    def _read_chunks(self, chunks: list[bytes]) -> Answer | None:
        held = self._held
        while found := _CHUNK.match(held, self._at):
            start = found.end()
            size = int(found[1], 16)
            if size == 0:
                # The line's own end and an empty one, or fields that are skipped and an empty line.
                end = held.find(b"\r\n\r\n", start - 2)
                if end < 0:
                    break
                return self._whole(chunks[0] if len(chunks) == 1 else b"".join(chunks), end + 4)
            end = start + size
            if len(held) < end + 2:
                self._wait(end + 2)
                return None
            if held[end : end + 2] != b"\r\n":
                raise ValueError("a chunk without an end")
            chunks.append(bytes(held[start:end]))
            self._at = end + 2
        else:
            if held.find(b"\r\n", self._at) >= 0:
                raise ValueError(f"no size of a chunk: {bytes(held[self._at : self._at + 20])!r}")
        self._limit(self._at)
        self._wait(len(held) + 1)
        return None

    def _wait(self, need: int) -> None:
        """Let go of what is understood, until `need` bytes of what is held now are there."""
        self._held = self._held[self._at :]
        self._need = need - self._at
        self._at = 0

    def _limit(self, start: int) -> None:
        if len(self._held) - start > _LONGEST_HEAD_BYTES:
            raise ValueError(f"no end of a line within {_LONGEST_HEAD_BYTES} bytes")

    def _whole(self, body: bytes, end: int) -> Answer:
        if len(self._held) > end:
            self.keeps = False
        return Answer(self._status, Headers(self._head or b""), body)


def _value(head: bytes, name: bytes) -> bytes:
    """Value of a field, of several the values joined; `name` from the line's end before it to the colon."""
    if name not in head:
        return b""
    values = (rest.partition(b"\r\n")[0].strip() for rest in head.split(name)[1:])
    return b",".join(values)
