#!/usr/bin/env python3
"""Interrupts (Ctrl-C) of the Python client at every moment at which the interpreter can see one.

The interpreter looks for signals where a function begins, after a call and where a loop goes back.
Moments finds these places by tracing each instruction of the package, and raises KeyboardInterrupt at
the n-th of them: for n = 1, 2, ... until the call comes through. No time and no chance is in that.
"""

import dis
import gc
import os
import pathlib
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy")
import numpy as np  # noqa: E402

import embps  # noqa: E402
from embps import arguments, library, requests  # noqa: E402

PACKAGE = str(pathlib.Path(embps.__file__).parent) + os.sep
LOOKS_AFTER = {"PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}


class Moments:
    """Runs a call with an interrupt at its n-th moment."""

    def __init__(self, n):
        self.left = n
        self.last = {}  # frame -> the instruction before

    def trace(self, frame, event, _argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            now = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            before = self.last.get(frame)
            self.last[frame] = now
            if before is None or (before in LOOKS_AFTER and (before, now) != ("PRECALL", "CALL")):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
        return self.trace

    def run(self, call):
        sys.settrace(self.trace)
        try:
            return call()
        finally:
            sys.settrace(None)
            self.last.clear()


class _Call:
    """One function of the library, with a look before and behind."""

    def __init__(self, ledger, name, function):
        self.ledger, self.name, self.function = ledger, name, function
        self.argtypes = function.argtypes

    def __call__(self, *given):
        self.ledger.before(self.name, given)
        code = self.function(*given)
        self.ledger.behind(self.name, given, code)
        return code


class Ledger:
    """The library, with a list of what it has under way; frees something twice never."""

    def __init__(self, library_=library.lib):
        self.lib = library_
        self.open = {}  # handle -> where it writes to
        self.counts = {}
        self.fail = None  # a code for embps_wait to end with

    def __getattr__(self, name):
        return _Call(self, name, getattr(self.lib, name))

    def before(self, name, given):
        self.counts[name] = self.counts.get(name, 0) + 1
        if name in ("embps_wait", "embps_export_end", "embps_watch_end") and given[0]:
            self.open.pop(given[0].value)  # KeyError: it was freed before

    def behind(self, name, given, code):
        if name.endswith("_start") and code == 0:
            rows = given[3] if name == "embps_pull_states_start" else None
            self.open[given[-2]._obj.value] = rows and library.ctypes.addressof(rows.contents)
        if name == "embps_wait" and self.fail:
            given[1]._obj.code, given[1]._obj.message = self.fail, b"as the test wants it"


def join_helpers():
    """Waits for calls that an interrupt left to themselves."""
    for thread in threading.enumerate():
        if thread.name == "embps":
            thread.join()


class Interrupts(python_tests.Case):
    def setUp(self):
        super().setUp()
        self.ledger = Ledger()
        patch = mock.patch.object(library, "lib", self.ledger)
        patch.start()
        self.addCleanup(patch.stop)
        self.client = self.connect()
        self.table = self.client.table("rows", 4, init=("constant", 3))

    def assert_sound(self):
        """What the library writes to is alive, and this thread has left the client."""
        session = self.client._session
        for handle, address in self.ledger.open.items():
            kept = [record for record in list(session.living) if record.handle.value == handle]
            self.assertEqual(len(kept), 1)
            if address is not None:
                self.assertEqual(kept[0].memory.ctypes.data, address)
        self.assertFalse(session.lock._is_owned())

    def each_moment(self, call, behind=None):
        """call with an interrupt at each of its moments in turn, then behind(). How many there are."""
        n = 0
        while True:
            n += 1
            try:
                Moments(n).run(call)
                return n - 1
            except KeyboardInterrupt as interrupt:
                self.assert_sound()  # with the traceback and its frames alive
                del interrupt
            self.assert_sound()
            if behind is not None:
                behind()

    def test_calls_leave_the_client_as_it_was(self):
        rows = np.ones((2, 4))
        for call in (lambda: self.table.pull([1, 2]), lambda: self.table.push_delta([7, 8], rows),
                     lambda: self.table.import_rows([5], rows[:1]), self.client.clock, self.client.stats,
                     self.client.tables, lambda: self.client.table("rows", 4, init=("constant", 3)),
                     lambda: self.table.prefetch([1]), self.client.flush):
            self.assertGreater(self.each_moment(call, join_helpers), 5)
            self.assertEqual(self.table.pull([1]).tolist(), [[3] * 4])

    def test_what_the_library_writes_to_outlives_the_call(self):
        def behind():
            self.assert_sound()
            self.client.flush()
            self.assertEqual(self.ledger.open, {})
        moments = self.each_moment(lambda: self.table.pull_async(np.arange(100)).result, behind)
        self.assertGreater(moments, 10)
        self.each_moment(lambda: self.table.push_delta_async([1], np.ones((1, 4))), behind)
        self.each_moment(self.client.flush, behind)

    def test_a_result_comes_after_an_interrupt(self):
        futures = []

        def wait(**given):
            futures[:] = [self.table.pull_async([1], out=np.full((1, 4), -1, dtype=np.float32))]
            Moments(self.moment).run(lambda: futures[0].result(**given))
        for given in ({}, {"timeout": 60}):
            for self.moment in range(1, 1000):
                try:
                    wait(**given)
                    break
                except KeyboardInterrupt:
                    self.assert_sound()
                self.assertEqual(futures[0].result().tolist(), [[3] * 4])
                self.assertTrue(futures[0].done())
            self.assertGreater(self.moment, 5)
        futures.clear()
        self.client.flush()
        self.assertEqual(self.ledger.open, {})

    def test_an_error_comes_after_an_interrupt(self):
        self.ledger.fail = embps.Timeout.code
        for moment in range(1, 1000):
            future = self.table.push_delta_async([1], np.ones((1, 4)))
            try:
                Moments(moment).run(future.exception)
                break
            except KeyboardInterrupt:
                pass
            for _ in range(2):
                self.assertRaisesRegex(embps.Timeout, "as the test wants it", future.result)
            self.assertIsInstance(future.exception(), embps.Timeout)
        self.assertGreater(moment, 5)
        # So it is for one that nobody asks.
        for moment in range(1, 1000):
            self.table.push_delta_async([1], np.ones((1, 4)))
            try:
                Moments(moment).run(self.client.flush)
            except embps.Timeout:
                break
            except KeyboardInterrupt:
                self.assert_sound()
            try:
                self.client.flush()
            except embps.Timeout:
                pass
            self.assertEqual(self.ledger.open, {})
        self.ledger.fail = None

    def walk(self, rows, moment):
        """All of an iterator that is interrupted, before each second block, at that moment; how often."""
        found, interrupts = [], 0

        def loop():
            for block in rows:
                found.append(block)
        while True:
            try:
                Moments(moment).run(loop)
                return found, interrupts
            except KeyboardInterrupt:
                interrupts += 1
                self.assert_sound()
            block = next(rows, None)
            if block is None:
                return found, interrupts
            found.append(block)

    def test_an_export_goes_on_with_nothing_missing(self):
        self.table.assign(np.arange(600), np.ones((600, 4)))
        for make in (self.table.export_blocks, self.table.export):
            self.assertGreater(self.each_moment(make, self.client.flush), 5)
            for moment in range(1, 1000):
                found, interrupts = self.walk(make(), moment)
                ids = np.concatenate([block[0] for block in found])
                self.assertEqual(sorted(ids.tolist()), list(range(600)))
                if interrupts == 0:
                    break
            self.assertGreater(moment, 20)
        self.client.flush()
        self.assertEqual(self.ledger.open, {})

    def test_a_watch_goes_on_with_nothing_missing(self):
        self.assertGreater(self.each_moment(self.table.watch, self.client.flush), 5)
        watch = self.table.watch(values=True)
        for next_ in (lambda: next(iter(watch)), lambda: watch.next(60)):
            for moment in range(1, 1000):
                self.table.assign([moment], np.full((1, 4), float(moment)))
                try:
                    changes = Moments(moment).run(next_)
                    self.assertEqual(changes.ids.tolist(), [moment])
                    break
                except KeyboardInterrupt:
                    self.assert_sound()
                self.assertEqual(watch.next(60).values.tolist(), [[moment] * 4])
            self.assertGreater(moment, 10)
        self.each_moment(watch.close)
        self.assertRaises(embps.Closed, watch.next)

    def test_a_close_is_made_once(self):
        clients = embps.connect_many(f"local:{self.folder / 'many'}", 200, memory="64M")
        for n, client in enumerate(clients, 1):
            table = client.table("t", 2)
            table.push_delta_async([1], np.ones((1, 2)))
            walk = table.export_blocks()
            closed = self.ledger.counts.get("embps_close", 0)
            try:
                Moments(n).run(client.close)
                break
            except KeyboardInterrupt:
                self.assertTrue(client._finalizer.alive or client._session.closed is not None)
                client.close()
            self.assertFalse(client._finalizer.alive)
            self.assertEqual(self.ledger.counts["embps_close"], closed + 1)
            self.assertRaises(embps.Closed, next, walk)
        self.assertTrue(10 < n < len(clients))
        for client in clients:
            client.close()
        self.assertEqual(self.ledger.open, {})

    def test_a_client_that_nobody_got_is_closed(self):
        address = self.serve()
        for n in range(1, 1000):
            try:
                Moments(n).run(lambda: embps.connect(address)).close()
                break
            except KeyboardInterrupt:
                pass
            join_helpers()
            self.assertEqual(self.ledger.counts.get("embps_close", 0), self.ledger.counts.get("embps_connect", 0))
        self.assertGreater(n, 10)


class Callbacks(python_tests.Case):
    def test_what_a_callback_raises_ends_connect(self):
        def call(_name, _address, wanted, _handle):  # the library's embps_connect, without the waiting
            for line in (b"one", b"two"):
                wanted._obj.waiting(None, line)
            called.append(1)
            raise embps.PeerGone("nobody answers")

        def waiting(line):
            lines.append(line)
            raise KeyboardInterrupt
        lines, called = [], []
        with mock.patch.object(library, "call", side_effect=call):
            self.assertRaises(KeyboardInterrupt, embps.connect, "127.0.0.1:1", waiting=waiting)
            join_helpers()
            self.assertEqual((lines, called), (["one"], [1]))
            self.assertRaises(embps.PeerGone, embps.connect, "127.0.0.1:1", waiting=lines.append)
        self.assertEqual(lines, ["one", "one", "two"])

    def test_what_is_wrong_with_what_is_told_is_raised(self):
        client = self.connect()
        client.table("t", 2)
        with mock.patch.object(arguments, "table_info", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, client.tables)
        self.assertEqual([info.name for info in client.tables()], ["t"])


class Starts(python_tests.Case):
    """Calls that wait for nobody, while another thread has the client."""

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.table = self.client.table("rows", 4)

    def test_they_return_and_are_made_in_order(self):
        ids, rows, out = np.array([1]), np.ones((1, 4), dtype=np.float32), np.full((1, 4), -1, dtype=np.float32)
        with python_tests.held(self.client):
            first = self.table.push_delta_async(ids, rows)
            rows[:], ids[:] = 7, 2  # what was given was copied
            second = self.table.pull_async([1], out=out)
            third = self.table.assign_async([1], rows)
            self.table.prefetch(ids)
            self.table.set_step(3)
            self.table.push_delta_async([9], rows)  # dropped
            gc.collect()
            for future in (first, second, third):
                self.assertFalse(future.done())
        self.assertIs(second.result(60), out)
        self.assertEqual(out.tolist(), [[1] * 4])
        self.assertIsNone(first.result(60))
        self.assertEqual(self.table.pull([1, 2, 9])[:, 0].tolist(), [7, 0, 7])

    def test_a_signal_handler_is_told_that_the_client_is_in_use(self):
        self.assertRaises(embps.Busy, self.client._session.run, self.table.pull, [1])
        self.assertEqual(self.table.pull([1]).tolist(), [[0] * 4])

    def test_their_errors_are_the_futures(self):
        with python_tests.held(self.client):
            future = self.table.push_async([5], np.full((1, 4), np.nan), 0.1)
        for _ in range(2):
            self.assertRaisesRegex(embps.InvalidArgument, "id 5 ", future.result)
        self.assertTrue(future.done())
        with python_tests.held(self.client):
            self.table.push_async([6], np.full((1, 4), np.nan), 0.1)
        gc.collect()
        self.assertRaisesRegex(embps.InvalidArgument, "id 6 ", self.client.flush)
        self.client.flush()

    def test_each_is_made_once_at_most_wherever_an_interrupt_comes(self):
        n = 0
        while True:
            n += 1
            with python_tests.held(self.client):
                try:
                    Moments(n).run(lambda: self.table.push_delta_async([n], np.ones((1, 4))))
                    break
                except KeyboardInterrupt:
                    pass
            self.client.flush()
            self.assertIn(self.table.pull([n])[0, 0], (0, 1))
        self.assertGreater(n, 20)

    def test_a_queue_that_is_made_is_made_once_wherever_an_interrupt_comes(self):
        n = 0
        while True:
            n += 1
            with mock.patch.object(self.client._session, "_make_queued"), python_tests.held(self.client):
                future = self.table.push_delta_async([n], np.ones((1, 4)))
            try:
                Moments(n).run(lambda: self.table.pull([n]))
                break
            except KeyboardInterrupt:
                pass
            self.assertIsNone(future.result())
            self.assertEqual(self.table.pull([n])[0, 0], 1)
        self.assertGreater(n, 20)

    def test_those_that_are_queued_are_made_before_the_end(self):
        client = embps.connect(f"local:{self.folder / 'other'}", memory="16M")
        table = client.table("t", 4)
        with python_tests.held(client):
            future = table.push_delta_async([1], np.ones((1, 4)))
        client.close()
        self.assertTrue(future._record.handle)  # the library had it

    def test_much_that_is_queued_is_waited_for(self):
        rows = np.ones((1024, 4), dtype=np.float32)
        done = []

        def push():
            for _ in range(3):
                self.table.push_delta_async(np.arange(1024), rows)
                done.append(1)
        thread = threading.Thread(target=push)
        with mock.patch.object(requests, "_QUEUED_MOST", 2 * rows.nbytes), python_tests.held(self.client):
            thread.start()
            thread.join(0.2)
            self.assertLessEqual(len(done), 1)  # two are more, with their ids
        thread.join()
        self.assertTrue((self.table.pull([0, 1023]) == 3).all())


if __name__ == "__main__":
    unittest.main()
