"""One client of the library and the requests that it has under way.

Session is what all calls go through: it keeps the client's pointer, one lock (embps.h: a client is
used by one thread at a time), and the process that connected.

Signals. The interpreter runs signal handlers, and raises KeyboardInterrupt, between instructions of
the main thread, so that an interrupt may come after any call and before its result is looked at.
Nothing may hang on that moment:
- What the library writes to, and where it puts a handle, is a Record in session.living before the
  library is called, and until it has said that it is done with it.
- A call that ends something, and the note that it is ended, are one instruction (library.note).
- The lock is released by a single call, in a `finally` that begins before it is taken.
- Finalizers are no code of Python: a Record is a weak reference whose callback is an append.
- What has callbacks, or gives a client, runs in a thread of its own (apart), where no handler runs.

Calls that start something never wait for the lock: where another thread has the client they are
queued, with copies of their arrays, and made by that thread when it lets go. Order is kept, as whoever
takes the client makes the calls that are queued before its own.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator
from ctypes import byref, c_bool, c_void_p
from typing import Any, Generic, TypeVar

import numpy as np

from . import arguments, errors, library

T = TypeVar("T")
_REST_LEAST, _REST_MOST = 0.0001, 0.002  # seconds between two looks at a call
_QUEUED_MOST = 32 << 20  # bytes of calls that wait for the client; as the library has for a server
REQUEST_END = "embps_wait"


class _Taken(Exception):
    """Another thread has the client."""


class Record(weakref.ref[Any]):
    """What the library has for a Future, a Walk or a Watch, and the memory that it writes to.

    It refers to that object weakly: when the object is gone the interpreter puts the record into
    session.dropped, and a later call ends what is there.
    """

    __slots__ = ("handle", "end_call", "memory", "refused", "said", "is_told")
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __new__(cls, of: Any, session: Session, _end_call: str, _memory: Any = None) -> Record:
        return super().__new__(cls, of, session.dropped.append)

    def __init__(self, of: Any, session: Session, end_call: str, memory: Any = None) -> None:
        super().__init__(of, session.dropped.append)
        self.handle = c_void_p()  # the library writes it; None in it: not begun
        self.end_call = end_call
        self.memory = memory
        self.refused = library.ErrorStruct()  # what a queued call that begins it said
        self.said: library.ErrorStruct | None = None  # what end_call said; None: not called
        self.is_told = False  # somebody has asked for its error

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to end any more. True remains so."""
        return self.said is not None or self.refused.code != 0

    @property
    def error(self) -> errors.Error | None:
        """Why it failed, when it is over; a new object."""
        for told in (self.refused, self.said):
            if told is not None and told.code != 0:
                return library.error(told)
        return None

    # The session's lock is held for these.

    def is_done(self) -> bool:
        """Whether end would return at once; moves messages."""
        if self.is_over or not self.handle or self.end_call != REQUEST_END:
            return True
        done = c_bool()
        try:
            library.call("embps_test", self.handle, byref(done))
        except errors.Error:
            return True  # of the client, not of this request: end tells it, and frees the request
        return done.value

    def end(self) -> None:
        """Waits for it and frees it, once."""
        if not self.is_over:
            library.note(self, "said", self.end_call, self.handle)

    def end_if_done(self) -> None:
        if self.is_done():
            self.end()


class _Start(functools.partial):  # type: ignore[type-arg]
    """A call that is queued; n_bytes: of the arrays that it was given."""

    n_bytes: int


def _nothing() -> None:
    pass


class Session:
    """The pointer to a client, guarded."""

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle
        self.closed: library.ErrorStruct | None = None  # what embps_close said; guarded by lock
        self.lock = threading.RLock()  # one that knows its owner
        self.pid = os.getpid()
        self.living: set[Record] = set()  # all that the library may have
        self.dropped: collections.deque[Record] = collections.deque()  # those that were forgotten
        self.queued: collections.deque[_Start] = collections.deque()  # taken from by who has lock
        self.unseen: errors.Error | None = None  # guarded by lock; the first error of a dropped one
        # Of each table by its name, those that keep rows of it: changed(ids) tells them.
        self.keepers: dict[str, weakref.WeakSet[Any]] = {}

    def run(self, work: Callable[..., T], *given: Any, seconds: float | None = None) -> T:
        """work(*given) with the client for this thread alone. seconds: how long to wait for other
        threads; _Taken says that it was too short."""
        if os.getpid() != self.pid:
            raise errors.Closed("this client was connected by another process, before a fork; connect "
                                "in the process that uses it")
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise errors.Busy("a signal handler calls the client in the middle of another call of it")
        try:
            value = self._locked(work, given, seconds)
        finally:
            self._make_queued()
        return value

    def _locked(self, work: Callable[..., T], given: tuple[Any, ...], seconds: float | None) -> T:
        try:
            if not self.lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)):
                raise _Taken
            self._enter()
            value = work(*given)
        finally:
            try:
                self.lock.release()
            except RuntimeError:
                pass  # not taken
        return value

    def _enter(self) -> None:
        """What has to be done before a call. The lock is held."""
        if self.closed is not None:
            raise errors.Closed("the client is closed")
        while self.queued:
            library.at_once(self.queued.popleft, self.queued[0])
        if self.dropped:
            self._reap(wait=False)

    def _make_queued(self) -> None:
        """Makes calls that are queued, unless another thread has the client, and so does it."""
        while self.queued:
            try:
                self._locked(_nothing, (), 0)
            except (_Taken, errors.Closed):
                return

    def _reap(self, wait: bool) -> None:
        """Ends what was dropped: what is done, or all. The lock is held."""
        for _ in range(len(self.dropped)):
            record = self.dropped[0]
            if wait or record.is_done():
                record.end()
                if not record.is_told:
                    self.unseen = self.unseen or record.error
                self.living.discard(record)
                self.dropped.popleft()
            else:
                self.dropped.rotate(-1)

    def call(self, name: str, *given: Any) -> None:
        """A call of embps.h that returns a code."""
        self.run(library.call, name, *given)

    def client_call(self, name: str, *given: Any) -> None:
        """A call that returns a code and begins with the client."""
        self.run(library.call, name, self.handle, *given)

    def client_value(self, name: str, *given: Any) -> Any:
        """What a call brings that cannot fail and begins with the client."""
        return self.run(getattr(library.lib, name), self.handle, *given)

    def start(self, name: str, make: Callable[..., tuple[Any, ...]], *given: np.ndarray,
              record: Record | None = None) -> None:
        """A call that waits for nobody, make(*given) being its arguments, and record what it begins.
        Raises what it says, unless it had to be queued; then record has it."""
        out = () if record is None else (byref(record.handle),)
        if record is not None:
            self.living.add(record)
        try:
            return self.run(library.call, name, *make(*given), *out, seconds=0)
        except _Taken:
            pass
        n_bytes = sum(array.nbytes for array in given)
        if n_bytes + sum(start.n_bytes for start in self.queued.copy()) > _QUEUED_MOST:
            return self.run(library.call, name, *make(*given), *out)
        error = library.ErrorStruct() if record is None else record.refused
        start = _Start(library.bind(error, name, *make(*(array.copy() for array in given)), *out))
        start.n_bytes = n_bytes
        self.queued.append(start)
        self._make_queued()
        return None

    def settle(self) -> None:
        """Waits for all dropped requests; raises the first error that one of them had."""
        self.run(self._reap, True)
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        error, self.unseen = self.unseen, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Closes the client; the second time nothing. In a forked child nothing at all."""
        if os.getpid() != self.pid:
            return
        if self.closed is None:
            try:
                self.run(self._close)
            except errors.Closed:
                pass  # by another thread
        self._raise_unseen()

    def _close(self) -> None:
        self._reap(wait=True)
        for record in list(self.living):
            if record.end_call != REQUEST_END:
                record.end()
        library.note(self, "closed", "embps_close", self.handle)
        if self.closed.code != 0:
            self.unseen = library.error(self.closed)
        self.living.clear()


def apart(work: Callable[..., T], *given: Any, told: Callable[[str], None] | None = None) -> T:
    """work(*given) in a thread of its own, where no signal handler runs. An interrupt ends the wait for
    it; it goes on, and what it brings is dropped. told: is called, here, with each line that work hands
    to its first argument, which it then has before the others; what it raises ends the wait likewise."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    brought: list[tuple[Any, BaseException | None]] = []
    if told is not None:
        given = (lines.put, *given)

    def go() -> None:
        try:
            brought.append((work(*given), None))
        except BaseException as error:  # raised by who waits
            brought.append((None, error))
        lines.put(None)
    thread = threading.Thread(target=go, name="embps")
    thread.start()
    while (line := lines.get()) is not None:
        if told is not None:
            told(line)
    thread.join()
    value, error = brought.pop()
    if error is not None:
        raise error
    return value


class Future(Generic[T]):
    """A call under way. result() waits; `await future` does so on a thread of the loop's executor, which
    lets others have the client meanwhile.

    Messages move inside calls of this library, so an answer is taken in by the next call of the
    client, whichever. A future that is dropped is no cancellation: a push is applied all the same,
    and its error is raised by client.flush() or client.close(). Nor is a wait that an interrupt
    (Ctrl-C) ends: result() may be called again.

    done, result and exception are as those of concurrent.futures.Future. The rest of that class is not
    here: nothing can be cancelled, and callbacks would need a thread that watches.
    """

    def __init__(self, owner: Any, session: Session, value: T) -> None:
        self._owner = owner  # the client: it is not closed as long as there is a future of it
        self._session = session
        self._value = value
        self._error: errors.Error | None = None
        self._record = Record(self, session, REQUEST_END, value)

    def done(self) -> bool:
        """Whether result() would return at once. Never waits; False where another thread has the client."""
        if self._record.is_over:
            return True
        try:
            return self._session.run(self._record.is_done, seconds=0)
        except _Taken:
            return False

    def _wait(self, timeout: float | None) -> None:
        """Until the call has ended. Raises TimeoutError, and Closed where its client was closed."""
        if timeout is not None:
            self._look(timeout, time.monotonic() + arguments.seconds_left("timeout", timeout))
        elif not self._record.is_over:
            self._session.run(self._record.end)

    def _look(self, timeout: float, until: float) -> None:
        """_wait, by looking again and again."""
        rest = _REST_LEAST
        while not self._record.is_over:
            try:
                self._session.run(self._record.end_if_done, seconds=max(0.0, until - time.monotonic()))
            except _Taken:
                pass
            if self._record.is_over:
                return
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the call has not ended within {timeout} s; it goes on")
            time.sleep(min(rest, left))  # lets others have the client
            rest = min(2 * rest, _REST_MOST)

    def result(self, timeout: float | None = None) -> T:
        """What the call brings: the rows of a pull, None for a push. Raises what the call would, and
        TimeoutError where that takes longer than so many seconds: the call goes on then, and result may
        be called again. (embps.Timeout, which is a TimeoutError too, ends a call: a server is silent.)"""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._value

    def exception(self, timeout: float | None = None) -> errors.Error | None:
        """What result would raise of the call itself, or None, when it has ended. timeout: as result's."""
        self._wait(timeout)
        if self._error is None:
            self._error = self._record.error
        self._record.is_told, self._record.memory = True, None
        self._session.living.discard(self._record)
        return self._error

    def _result_beside_others(self) -> T:
        self._look(math.inf, math.inf)
        return self.result()

    def __await__(self) -> Generator[Any, None, T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self._result_beside_others).__await__()
