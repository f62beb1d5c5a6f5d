"""What calls of embps raise: one class a code of embps.h, all of them embps.Error.

Where Python has a word for it, the class is that exception too: a bad argument is a ValueError, a
server that is gone a ConnectionError.
"""

from __future__ import annotations


class Error(Exception):
    """Base of all errors of embps.

    code: the number (EMBPS_... of embps.h); rank: the server it concerns, or -1; row_id: the row it
    concerns where the library names one, else 0.
    """

    code: int = 61
    rank: int = -1
    row_id: int = 0

    def __init__(self, message: str, *, rank: int = -1, row_id: int = 0) -> None:
        super().__init__(message)
        self.rank = rank
        self.row_id = row_id


class InvalidArgument(Error, ValueError):
    """A value that cannot be: of an argument, by its name, of an id, a gradient. Nothing was sent."""
    code = 2


class NotFound(Error, LookupError):
    """There is no such checkpoint, or file."""
    code = 3


class Mismatch(Error, ValueError):
    """What exists is something else, e.g. the table has another dim. The message has both values."""
    code = 4


class Unsupported(Error):
    """This library or this server does not have it."""
    code = 5


class Busy(Error):
    """Not now; later it may go. Also: a signal handler calls a client in the middle of a call of it."""
    code = 6


class Interrupted(Error):
    """The job was stopped, by a signal to one of its workers say."""
    code = 7


class Denied(Error, PermissionError):
    """The token of this client does not allow it, or is none that the servers know."""
    code = 8


class ProtocolError(Error):
    """What came is no message of embps."""
    code = 20


class PeerGone(Error, ConnectionError):
    """A server, or this client in the eyes of the servers, is gone."""
    code = 21


class Timeout(Error, TimeoutError):
    """A server owes an answer for too long. A push that fails so may have been applied, or be so yet."""
    code = 22


class StorageError(Error, OSError):
    """A disk of a server cannot be read or written."""
    code = 40


class DiskFull(StorageError):
    """A disk has no room for what is to be kept."""
    code = 41


class Corrupt(StorageError):
    """Data on disk is damaged."""
    code = 42


class Unclean(StorageError):
    """The data directory is another run's, or was not closed clean."""
    code = 43


class InUse(StorageError):
    """Another process has the data directory."""
    code = 44


class NoMemory(Error, MemoryError):
    """Here, or in a server beyond its --memory."""
    code = 60


class Internal(Error):
    """A fault of embps itself; please report it."""
    code = 61


class Closed(Error):
    """The client was closed, or belongs to another process: connect again after a fork."""
    code = 2


BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (InvalidArgument, NotFound, Mismatch, Unsupported, Busy, Interrupted, Denied,
                 ProtocolError, PeerGone, Timeout, StorageError, DiskFull, Corrupt, Unclean, InUse, NoMemory,
                 Internal)
}


def make(code: int, message: str, rank: int = -1, row_id: int = 0) -> Error:
    """The exception of a code."""
    kind = BY_CODE.get(code, Error)
    error = kind(message, rank=rank, row_id=row_id)
    error.code = code
    return error
