"""One client of the library and the requests that it has under way.

Session is what all calls go through: it keeps the client's pointer, one lock (embps.h: a client is
used by one thread at a time), and the process that connected. A request that nobody waits for any
more leaves its record in `dropped` and is ended by a later call; the record holds the memory that
the library still writes to. Finalizers only append to that queue or close, and never wait for the
lock, so that the collector may run them anywhere.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from ctypes import byref, c_bool, c_void_p
from typing import Any, Generic, TypeVar

from . import arguments, errors, library

T = TypeVar("T")
_REST_LEAST, _REST_MOST = 0.0001, 0.002  # seconds between two looks at a call


class _Record:
    """A request of the library, and what must live as long as it."""

    __slots__ = ("handle", "value")

    def __init__(self, handle: c_void_p, value: Any) -> None:
        self.handle: c_void_p | None = handle
        self.value = value


class Session:
    """The pointer to a client, guarded."""

    def __init__(self, handle: c_void_p) -> None:
        self.handle: c_void_p | None = handle  # guarded by lock
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.dropped: collections.deque[_Record] = collections.deque()
        self.unseen: errors.Error | None = None  # guarded by lock; the first error of a dropped one
        self.walks: set[Any] = set()  # exports and watches (walks.py); guarded by lock
        self.ended_walks: collections.deque[Any] = collections.deque()  # those that were forgotten
        # Of each table by its name, those that keep rows of it: changed(ids) tells them.
        self.keepers: dict[str, weakref.WeakSet[Any]] = {}

    @contextlib.contextmanager
    def use(self, seconds: float | None = None) -> Iterator[c_void_p]:
        """The pointer, for this thread alone, for the time of the block. seconds: how long to wait for
        other threads; TimeoutError says that it was too short."""
        if os.getpid() != self.pid:
            raise errors.Closed("this client was connected by another process, before a fork; connect "
                                "in the process that uses it")
        if not self.lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)):
            raise TimeoutError("other threads use the client")
        try:
            if self.handle is None:
                raise errors.Closed("the client is closed")
            if self.dropped:
                self._reap(wait=False)
            while self.ended_walks:
                walk = self.ended_walks.popleft()
                self.walks.discard(walk)
                walk.end()
            yield self.handle
        finally:
            self.lock.release()

    def _reap(self, wait: bool) -> None:
        """Ends dropped requests: those that are done, or all."""
        for _ in range(len(self.dropped)):
            record = self.dropped.popleft()
            try:
                if wait or test(record):
                    finish(record)
                else:
                    self.dropped.append(record)
            except errors.Error as error:
                self.unseen = self.unseen or error

    def settle(self) -> None:
        """Waits for all dropped requests; raises the first error that one of them had."""
        with self.use():
            self._reap(wait=True)
            self._raise_unseen()

    def _raise_unseen(self) -> None:
        error, self.unseen = self.unseen, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Closes the client; the second time nothing. In a forked child the pointer is forgotten."""
        if os.getpid() != self.pid:
            self.handle = None
            return
        with self.lock:
            if self.handle is None:
                return
            self._reap(wait=True)
            while self.walks:
                self.walks.pop().end()
            handle, self.handle = self.handle, None
            library.call("embps_close", handle)
            self._raise_unseen()


def test(record: _Record) -> bool:
    """Whether finish would return at once; moves messages. The session's lock is held."""
    done = c_bool()
    try:
        library.call("embps_test", record.handle, byref(done))
    except errors.Error:
        return True  # of the client, not of this request: finish raises it, and frees the request
    return done.value


def finish(record: _Record) -> None:
    """Waits for the request and frees it. The session's lock is held."""
    handle, record.handle = record.handle, None
    library.call("embps_wait", handle)


class Future(Generic[T]):
    """A call under way. result() waits; `await future` does so on a thread of the loop's executor.

    Messages move inside calls of this library, so an answer is taken in by the next call of the
    client, whichever. A future that is dropped is no cancellation: a push is applied all the same,
    and its error is raised by client.flush() or client.close().

    done, result and exception are as those of concurrent.futures.Future. The rest of that class is not
    here: nothing can be cancelled, and callbacks would need a thread that watches.
    """

    def __init__(self, owner: Any, session: Session, handle: c_void_p, value: T) -> None:
        self._owner = owner  # the client: it is not closed as long as there is a future of it
        self._session = session
        self._record = _Record(handle, value)
        self._error: errors.Error | None = None
        self._drop = weakref.finalize(self, session.dropped.append, self._record)
        self._drop.atexit = False

    def _end(self) -> None:
        """The session's lock is held."""
        self._drop.detach()
        try:
            finish(self._record)
        except errors.Error as error:
            self._error = error

    def done(self) -> bool:
        """Whether result() would return at once."""
        if self._record.handle is None:
            return True
        with self._session.use():
            return self._record.handle is None or test(self._record)

    def _wait(self, timeout: float | None) -> None:
        """Until the call has ended. Raises TimeoutError, and Closed where its client was closed."""
        if timeout is None:
            if self._record.handle is not None:
                with self._session.use():
                    if self._record.handle is not None:  # another thread may have been here meanwhile
                        self._end()
            return
        until = time.monotonic() + arguments.seconds_left("timeout", timeout)
        rest = _REST_LEAST
        while self._record.handle is not None:
            with self._session.use(max(0.0, until - time.monotonic())):
                if self._record.handle is not None and test(self._record):
                    self._end()
            if self._record.handle is None:
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
        self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._record.value

    def exception(self, timeout: float | None = None) -> errors.Error | None:
        """What result would raise of the call itself, or None, when it has ended. timeout: as result's."""
        self._wait(timeout)
        return self._error

    def __await__(self) -> Generator[Any, None, T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self.result).__await__()
