"""Tables as a whole: the rows of an export, block by block.

An export lives in the library and must end before its client is closed. One that is forgotten in the
middle leaves its record to the session (requests.py), which ends it with the next call or at the
close, so that the collector never waits.
"""

from __future__ import annotations

import weakref
from ctypes import byref, c_void_p
from typing import Any, NamedTuple, Optional

import numpy as np

from . import library
from .requests import Session


class Block(NamedTuple):
    """Some rows of a table. N: how many, D: the table's dim, K: numbers of the optimizer's state."""

    ids: np.ndarray  # [N] uint64
    values: np.ndarray  # [N, D] float32
    state: Optional[np.ndarray]  # [N, K] float32; None: not asked for, or K is 0
    counts: Optional[np.ndarray]  # [N, 2] uint32: version and count of updates; None: not asked for


class WalkRecord:
    """The library's pointer to an export."""

    __slots__ = ("handle", "__weakref__")

    def __init__(self, handle: c_void_p) -> None:
        self.handle: c_void_p | None = handle

    def end(self) -> None:
        """Ends it, once. The session's lock is held."""
        handle, self.handle = self.handle, None
        if handle is not None:
            library.lib.embps_export_end(handle)


class Walk:
    """An iterator of Block; Table.export_blocks makes it. close() ends it early."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, state: bool) -> None:
        handle = c_void_p()
        self._owner = owner  # the client: it is not closed as long as there is an export of it
        self._session = session
        with session.use():
            library.call("embps_export_start", table, library.EXPORT_STATE if state else 0, byref(handle))
            self._record = WalkRecord(handle)
            session.walks.add(self._record)
        self._drop = weakref.finalize(self, session.ended_walks.append, self._record)
        self._drop.atexit = False

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Block:
        block = library.BlockStruct()
        if self._record.handle is None:
            raise StopIteration
        with self._session.use():
            library.call("embps_export_next", self._record.handle, byref(block))
            if block.n != 0:
                return _copy(block)
            self._end()
        raise StopIteration

    def _end(self) -> None:
        self._drop.detach()
        self._session.walks.discard(self._record)
        self._record.end()

    def close(self) -> None:
        """Ends the export; the second time nothing."""
        if self._record.handle is not None:
            with self._session.use():
                self._end()


def _array(pointer: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, shape=shape).copy()


def _copy(block: Any) -> Block:
    n = block.n
    return Block(_array(block.ids, (n,)), _array(block.rows, (n, block.dim)),
                 _array(block.state, (n, block.state_floats)) if block.state else None,
                 _array(block.counts, (n, 2)) if block.counts else None)
