"""Tables as a whole: the rows of an export, block by block, and those that others push.

An export or a watch lives in the library and must end before its client is closed. One that is
forgotten in the middle leaves its record to the session (requests.py, also about signals), which ends
it with the next call or at the close, so that the collector never waits.
"""

from __future__ import annotations

import math
import time
from ctypes import byref, c_bool, c_void_p
from typing import Any, NamedTuple, Optional

import numpy as np

from . import arguments, errors, library
from .requests import Record, Session

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


class _Held:
    """Something of the library that ends with close(), when it is forgotten, or with its client.

    What the library brings stays here until an iteration hands it out, and no call is made between
    the note that it is handed out and the return: where an interrupt ends an iteration, the next one
    brings it.
    """

    def __init__(self, owner: Any, session: Session, table: c_void_p, kind: str, flags: int) -> None:
        self._owner = owner  # the client: it is not closed as long as there is one of these
        self._session = session
        self._ended = False  # told to its end, or closed; else its client was closed first
        self._block = library.BlockStruct()  # what the library brought last
        self._lost = c_bool()
        self._said: library.ErrorStruct | None = None  # by the call that brought it; None: it is seen to
        self._ready: Any = None  # the same for who iterates; None: nothing
        self._record = Record(self, session, f"embps_{kind}_end")
        session.living.add(self._record)
        session.call(f"embps_{kind}_start", table, flags, byref(self._record.handle))

    def _advance(self, name: str, *given: Any) -> None:
        """Has the library bring something, unless there is something. The session's lock is held."""
        if self._ready is not None or self._record.is_over:
            return
        if self._said is None:
            library.note(self, "_said", name, self._record.handle, *given)
        if self._said.code != 0:
            error = library.error(self._said)
            self._said = None
            raise error
        self._ready = self._seen()
        self._said = None

    def _seen(self) -> Any:
        """What the library brought, copied; None: nothing. The session's lock is held."""
        raise NotImplementedError

    def _end(self) -> None:
        """The session's lock is held."""
        self._ended = True
        self._record.end()
        self._session.living.discard(self._record)

    def _is_over(self) -> bool:
        """Whether there is no more. Raises Closed where that is because its client was closed."""
        if self._ended:
            return True
        if self._record.is_over:
            self._session.run(int)
        return False

    def close(self) -> None:
        """Ends it; the second time nothing."""
        if not self._record.is_over:
            self._session.run(self._end)


class Walk(_Held):
    """An iterator of Block; Table.export_blocks makes it. close() ends it early. An interrupt (Ctrl-C) in
    a loop over it leaves out nothing when it is gone on with."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, state: bool) -> None:
        super().__init__(owner, session, table, "export", library.EXPORT_STATE if state else 0)

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Any:
        while not self._is_over():
            self._session.run(self._advance, "embps_export_next", byref(self._block))
            found, self._ready = self._ready, None
            if found is not None:
                return found
        raise StopIteration

    def _seen(self) -> Any:
        if self._block.n == 0:
            self._end()
            return None
        return _copy(self._block)


class Pairs(Walk):
    """The same as an iterator of pairs of ids and values."""

    def _seen(self) -> Any:
        block = super()._seen()
        return None if block is None else (block.ids, block.values)


class Watch(_Held):
    """An endless iterator of Changes; Table.watch makes it. close() ends it, from any thread too. An
    interrupt (Ctrl-C) loses no changes."""

    def __init__(self, owner: Any, session: Session, table: c_void_p, values: bool) -> None:
        super().__init__(owner, session, table, "watch", library.WATCH_ROWS if values else 0)

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Changes:
        while not self._is_over():
            self._look_until(math.inf)
            found, self._ready = self._ready, None
            if found is not None:
                return found
        raise StopIteration

    def next(self, seconds: float | None = None) -> Changes | None:
        """The next changes. None: there were none for so long. Raises Closed where the watch is closed, or
        another thread closes it meanwhile. Other threads may use the client meanwhile."""
        self._look_until(math.inf if seconds is None else
                         time.monotonic() + arguments.seconds_left("seconds", seconds))
        found, self._ready = self._ready, None
        if found is None and self._is_over():
            raise errors.Closed("the watch is closed")
        return found

    def _look_until(self, until: float) -> None:
        """Returns when something is ready, it is that late, or the watch is over."""
        while not self._is_over():
            left = max(0.0, until - time.monotonic()) * 1000
            self._session.run(self._advance, "embps_watch_next", round(min(left, _SLICE_MS)), byref(self._block),
                              byref(self._lost))
            if self._ready is not None or time.monotonic() >= until:
                return
            time.sleep(0.001)  # lets others have the client

    def _seen(self) -> Changes | None:
        block, lost = self._block, self._lost.value
        if block.n == 0:
            return Changes(np.empty(0, dtype=np.uint64), None, True) if lost else None
        return Changes(_array(block.ids, (block.n,)),
                       _array(block.rows, (block.n, block.dim)) if block.rows else None, lost)


def _array(pointer: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, shape=shape).copy()


def _copy(block: Any) -> Block:
    n = block.n
    return Block(_array(block.ids, (n,)), _array(block.rows, (n, block.dim)),
                 _array(block.state, (n, block.state_floats)) if block.state else None,
                 _array(block.counts, (n, 2)) if block.counts else None)
