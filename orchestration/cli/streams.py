"""Standard output and error whose reader may go (`… | head -1`): the command goes on, and keeps its exit code.

Python raises an error for each write to such a pipe, and click and rich end the command then: with exit code 1, which
says that a table is wrong, and in the middle of its work.
"""

from __future__ import annotations

import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD_OUTPUT = 1
# File descriptors.
_WITHOUT_READER = set[int]()


def outlive_readers() -> None:
    """From now on a write that nobody can read is dropped."""
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)


def is_read() -> bool:
    """Whether standard output has a reader, as far as the last write has shown."""
    return _STANDARD_OUTPUT not in _WITHOUT_READER


class _Outliving(FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            _WITHOUT_READER.add(self.fileno())
            return memoryview(data).nbytes


def _outliving(stream: TextIO) -> TextIO:
    if stream not in (sys.__stdout__, sys.__stderr__) or not isinstance(stream, TextIOWrapper):
        return stream  # closed from the start, or a test's
    return TextIOWrapper(
        BufferedWriter(_Outliving(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
