"""Files that a command is given or told to write, and standard input.

Decides how much of one is read, and in which encoding. Never decides what is in it: `cluster.documents` does.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from shardwright.api.reasons import Reason

LARGEST_BYTES: Final = 128 << 20
"""Of a file. 10 000 pods as `kubectl get -o yaml` prints them take some 60 MB."""
LONGEST_LINE_BYTES: Final = 1 << 20
"""Of a file of JSON lines; a config.json takes a few kB."""


class InputError(ValueError):
    """A file or an option that cannot be used; the message names it and says what to write instead.

    `reason` is what the operator would say in a condition.
    """

    def __init__(self, message: str, reason: Reason = Reason.INVALID_SPEC) -> None:
        super().__init__(message)
        self.reason = reason


class UsageError(InputError):
    """An option that is missing or cannot be used, whatever the files say."""


def read_text(path: str) -> str:
    """Read a file, or standard input for "-". Raises InputError."""
    with ExitStack() as stack:
        content = _read(_opened(path, stack), path, LARGEST_BYTES + 1, lines=False)
    if len(content) > LARGEST_BYTES:
        raise InputError(
            f"{name_of(path)} is larger than {LARGEST_BYTES >> 20} MiB: leave out what is not needed"
        )
    return _decoded(content, name_of(path))


def read_lines(path: str) -> Iterator[str]:
    """Read a file, or standard input for "-", line by line. Raises InputError."""
    with ExitStack() as stack:
        stream, number = _opened(path, stack), 0
        while line := _read(stream, path, LONGEST_LINE_BYTES + 1, lines=True):
            number += 1
            where = f"{name_of(path)}, line {number}"
            if len(line) > LONGEST_LINE_BYTES:
                most = f"{LONGEST_LINE_BYTES >> 20} MiB"
                raise InputError(f"{where} is longer than {most}: write one JSON object a line")
            yield _decoded(line, where)


def write_text(option: str, path: str, text: str) -> None:
    """Write a file that an option names. Raises InputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{option}: cannot write {path}: {why}") from error


def name_of(path: str) -> str:
    """Say what a file is called in messages."""
    return "standard input" if path == "-" else path


def one_line(error: Exception) -> str:
    """Return all that is wrong in one line."""
    return "; ".join(str(error).splitlines())


def of_file(path: str, error: Exception) -> InputError:
    """Put a file's name before each line of what is wrong with it; without a name nothing."""
    head = f"{name_of(path)}: " if path else ""
    reason = error.reason if isinstance(error, InputError) else Reason.INVALID_SPEC
    return InputError("\n".join(f"{head}{line}" for line in str(error).splitlines()), reason)


def _opened(path: str, stack: ExitStack) -> BinaryIO:
    if path != "-":
        try:
            return stack.enter_context(open(path, "rb"))  # noqa: PTH123 -- pathlib adds nothing
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            raise _unreadable(path, error) from error
    found: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if found is None:
        raise InputError("standard input is closed: name a file")
    return found


def _read(stream: BinaryIO, path: str, most: int, *, lines: bool) -> bytes:
    try:
        return stream.readline(most) if lines else stream.read(most)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> InputError:
    why = error.strerror if isinstance(error, OSError) else None
    return InputError(f"cannot read {name_of(path)}: {why or error}")


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 from byte {error.start} on: save it as UTF-8") from error
