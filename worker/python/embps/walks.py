"""Tables as a whole: the rows of an export, block by block, and those that others push.

An export or a watch lives in the library and must end before its client is closed. One that is
forgotten in the middle leaves its record to the session (requests.py), which ends it with the next
call or at the close, so that the collector never waits.
"""

from __future__ import annotations

import time
import weakref
from ctypes import byref, c_bool, c_void_p
from typing import Any, NamedTuple, Optional

import numpy as np

from . import arguments, library
from .requests import Session

_SLICE_MS = 20  # that a watch keeps its client from other threads


class Block(NamedTuple):
    """Some rows of a table. N: how many, D: the table's dim, K: numbers of the optimizer's state."""

    ids: np.ndarray  # [N] uint64
    values: np.ndarray  # [N, D] float32
    state: Optional[np.ndarray]  # [N, K] float32; None: not asked for, or K is 0
    counts: Optional[np.ndarray]  # [N, 2] uint32: version and count of updates; None: not asked for


class Changes(NamedTuple):
    """Rows that pushes and imports have reached."""

    ids: np.ndarray  # [N] uint64, each once
    values: Optional[np.ndarray]  # [N, D] float32, as they are now; None: not asked for
    lost: bool  # others were reached, any number, that will not be told: look at all


class _Record:
    """The library's pointer to an export or a watch, and the name of the call that ends it."""

    __slots__ = ("handle", "call", "__weakref__")

    def __init__(self, handle: c_void_p, call: str) -> None:
        self.handle: c_void_p | None = handle
        self.call = call

    def end(self) -> None:
        """Ends it, once. The session's lock is held."""
        handle, self.handle = self.handle, None
        if handle is not None:
            getattr(library.lib, self.call)(handle)


class _Held:
    """Something of the library that ends with close(), when it is forgotten, or with its client."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, kind: str, flags: int) -> None:
        handle = c_void_p()
        self._ended = False  # told to its end, or closed; else its client was closed first
        self._owner = owner  # the client: it is not closed as long as there is one of these
        self._session = session
        with session.use():
            library.call(f"embps_{kind}_start", table, flags, byref(handle))
            self._record = _Record(handle, f"embps_{kind}_end")
            session.walks.add(self._record)
        self._drop = weakref.finalize(self, session.ended_walks.append, self._record)
        self._drop.atexit = False

    def _end(self) -> None:
        """The session's lock is held."""
        self._drop.detach()
        self._ended = True
        self._session.walks.discard(self._record)
        self._record.end()

    def _is_over(self) -> bool:
        """Whether there is no more. Raises Closed where that is because its client was closed."""
        if self._record.handle is not None:
            return False
        if not self._ended:
            with self._session.use():
                pass
        return True

    def close(self) -> None:
        """Ends it; the second time nothing."""
        if self._record.handle is not None:
            with self._session.use():
                self._end()


class Walk(_Held):
    """An iterator of Block; Table.export_blocks makes it. close() ends it early."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, state: bool) -> None:
        super().__init__(owner, session, table, "export", library.EXPORT_STATE if state else 0)

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Block:
        block = library.BlockStruct()
        if self._is_over():
            raise StopIteration
        with self._session.use():
            library.call("embps_export_next", self._record.handle, byref(block))
            if block.n != 0:
                return _copy(block)
            self._end()
        raise StopIteration


class Watch(_Held):
    """An endless iterator of Changes; Table.watch makes it. close() ends it, from any thread too."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, values: bool) -> None:
        super().__init__(owner, session, table, "watch", library.WATCH_ROWS if values else 0)

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Changes:
        changes = self.next()
        if changes is None:
            raise StopIteration
        return changes

    def next(self, seconds: float | None = None) -> Changes | None:
        """The next changes. None: there were none for so long, or the watch was closed. Other threads
        may use the client meanwhile."""
        until = None if seconds is None else time.monotonic() + arguments.seconds_left("seconds", seconds)
        while not self._is_over():
            left = _SLICE_MS if until is None else max(0, round((until - time.monotonic()) * 1000))
            changes = self._look(min(left, _SLICE_MS))
            if changes is not None:
                return changes
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(0.001)  # lets others have the client
        return None

    def _look(self, milliseconds: int) -> Changes | None:
        block, lost = library.BlockStruct(), c_bool()
        with self._session.use():
            if self._record.handle is None:
                return None
            library.call("embps_watch_next", self._record.handle, milliseconds, byref(block), byref(lost))
            if block.n == 0:
                return Changes(np.empty(0, dtype=np.uint64), None, True) if lost.value else None
            return Changes(_array(block.ids, (block.n,)),
                           _array(block.rows, (block.n, block.dim)) if block.rows else None, lost.value)


def _array(pointer: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, shape=shape).copy()


def _copy(block: Any) -> Block:
    n = block.n
    return Block(_array(block.ids, (n,)), _array(block.rows, (n, block.dim)),
                 _array(block.state, (n, block.state_floats)) if block.state else None,
                 _array(block.counts, (n, 2)) if block.counts else None)
