#!/usr/bin/env python3
"""The Python client against a server in this process: what it brings, what it refuses, who owns what."""

import asyncio
import copy
import ctypes
import gc
import inspect
import os
import pathlib
import re
import subprocess
import sys
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy")
import numpy as np  # noqa: E402

import embps  # noqa: E402
from embps import errors, library, requests  # noqa: E402

HEADER = python_tests.ROOT / "worker" / "include" / "embps.h"
TOP = 2**64 - 1


class Declarations(python_tests.Case):
    """What library.py repeats of embps.h."""

    def c_layout(self, name, struct):
        """Size of the C struct and offset of each field, as the compiler has them."""
        fields = [field for field, _ in struct._fields_]
        prints = "".join(f'printf(" %zu", offsetof({name}, {field}));' for field in fields)
        source = self.folder / "layout.c"
        source.write_text(f'#include <embps.h>\n#include <stdio.h>\n'
                          f'int main(void) {{ printf("%zu", sizeof({name})); {prints} return 0; }}\n',
                          encoding="ascii")
        program = self.folder / "layout"
        subprocess.run([os.environ.get("CC", "cc"), f"-I{HEADER.parent}", source, "-o", program], check=True)
        return [int(n) for n in subprocess.check_output([program]).split()]

    def test_structs_are_those_of_the_header(self):
        for name, struct in (("embps_error_t", library.ErrorStruct),
                             ("embps_local_options_t", library.LocalOptions),
                             ("embps_connect_options_t", library.ConnectOptions),
                             ("embps_table_options_t", library.TableOptions),
                             ("embps_block_t", library.BlockStruct)):
            ours = [ctypes.sizeof(struct)] + [getattr(struct, field).offset for field, _ in struct._fields_]
            self.assertEqual(ours, self.c_layout(name, struct), name)

    def test_limits_are_those_of_the_library(self):
        for name, value in (("embps.h", library.FLUSH_MAX), ("local_shard.h", library.LOCAL_WORKERS_MAX),
                            ("embps.h", library.MAX_PARAMS), ("embps.h", library.CHECKPOINT_NAME_BYTES)):
            found = {"embps.h": HEADER, "local_shard.h": HEADER.parents[1] / name}[name].read_text(encoding="utf-8")
            self.assertRegex(found, rf"(?m)^#define \w+_(MAX|PARAMS|BYTES) {value}u?$")

    def test_everything_public_is_described(self):
        page = (python_tests.ROOT / "worker" / "python" / "README.md").read_text(encoding="utf-8")
        classes = (embps.Client, embps.Table, embps.Future, embps.Walk, embps.Watch)
        public = [(name, getattr(embps, name)) for name in embps.__all__]
        public += [(name, getattr(kind, name)) for kind in classes for name in dir(kind) if not name.startswith("_")]
        for name, what in public:
            self.assertRegex(page, rf"\b{name}\b")
            self.assertTrue(inspect.getdoc(what), name)
        self.assertEqual(set(embps.__all__), {name for name in dir(embps) if name[0] != "_" and not isinstance(
            getattr(embps, name), types.ModuleType)})

    def test_each_code_of_the_header_is_a_class(self):
        codes = re.findall(r"^    EMBPS_([A-Z_]+) = (\d+),", HEADER.read_text(encoding="utf-8"), re.MULTILINE)
        codes = {int(number) for name, number in codes
                 if name not in {"OK", "GRADIENT", "DELTA", "ASSIGN"} and not name.startswith("ROW_")}
        self.assertEqual(codes, set(errors.BY_CODE))

    def test_without_a_library_the_import_says_what_to_do(self):
        environment = {**os.environ, "EMBPS_LIBRARY": "/nonexistent/libembps.so",
                       "PYTHONPATH": str(python_tests.ROOT / "worker" / "python")}
        said = subprocess.run([sys.executable, "-c", "import embps"], env=environment, text=True,
                              stderr=subprocess.PIPE, check=False)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("ImportError: embps: libembps.so cannot be loaded", said.stderr)
        self.assertIn("/nonexistent/libembps.so", said.stderr)
        self.assertIn("EMBPS_LIBRARY", said.stderr)


class Rows(python_tests.Case):
    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.table = self.client.table("rows", 3, init=("constant", 0.5))

    def test_rows_come_in_the_shape_of_the_ids(self):
        for shape in ((), (0,), (1,), (4,), (2, 3), (2, 0, 3), (1, 2, 3)):
            rows = self.table.pull(np.zeros(shape, dtype=np.int64))
            self.assertEqual((rows.shape, rows.dtype), ((*shape, 3), np.float32))
            self.assertTrue((rows == 0.5).all())
        self.assertEqual(self.table.pull([]).shape, (0, 3))

    def test_ids_of_any_integer_type_name_the_same_rows(self):
        self.table.assign([0, 1, 100, TOP], np.arange(12).reshape(4, 3) * 1.0)
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"):
            rows = self.table.pull(np.array([100, 0, 1], dtype=dtype))
            self.assertEqual(rows[:, 0].tolist(), [6, 0, 3])
        self.assertEqual(self.table.pull([TOP, 1])[:, 2].tolist(), [11, 5])
        self.assertEqual(self.table.pull(np.array([TOP], dtype=np.uint64))[0].tolist(), [9, 10, 11])
        self.assertEqual(self.table.pull(np.arange(200)[::-1][99:101])[:, 0].tolist(), [6, 0.5])
        self.assertEqual(self.table.pull(np.array([100, TOP], dtype=object))[:, 0].tolist(), [6, 9])

    def test_what_is_no_id_is_refused(self):
        for ids in (-1, [-1], [3, -7], np.array([-1], dtype=np.int8), [2**64], [1.0], np.ones(2), [True],
                    np.array([True]), "7", ["7"], None, [None], [[1], [2, 3]], object()):
            with self.assertRaises(embps.InvalidArgument, msg=repr(ids)) as caught:
                self.table.pull(ids)
            self.assertIsInstance(caught.exception, ValueError)
            self.assertIn("ids", str(caught.exception))

    def test_what_are_no_rows_is_refused_and_nothing_is_sent(self):
        bad = (np.ones((2, 2)), np.ones((3, 3)), np.ones(6), np.ones((2, 3), dtype=complex), "x", None,
               np.ones((2, 3), dtype=np.int64), np.full((2, 3), np.nan), np.full((2, 3), -np.inf),
               np.full((2, 3), 1e300), [[1.0, 2.0, 3.0], [4.0, 5.0]])
        for rows in bad:
            for push in (lambda rows: self.table.push([1, 2], rows, 0.1),
                         lambda rows: self.table.push_delta([1, 2], rows),
                         lambda rows: self.table.assign([1, 2], rows),
                         lambda rows: self.table.push_async([1, 2], rows, 0.1)):
                self.assertRaises(embps.InvalidArgument, push, rows)
        for rate in (np.nan, np.inf, None, "fast"):
            self.assertRaises(embps.InvalidArgument, self.table.push, [1], np.ones((1, 3)), rate)
        self.assertTrue((self.table.pull([1, 2]) == 0.5).all())

    def test_a_value_that_is_not_finite_is_named_by_its_id(self):
        rows = np.zeros((2, 3))
        rows[1, 2] = np.nan
        for name, call in (("push", lambda: self.table.push([5, TOP], rows, 0.1)),
                           ("push_delta", lambda: self.table.push_delta([5, TOP], rows)),
                           ("assign", lambda: self.table.assign_async([5, TOP], rows))):
            with self.assertRaisesRegex(embps.InvalidArgument, f"^{name}: the row of id {TOP} ") as caught:
                call()
            self.assertEqual((caught.exception.row_id, caught.exception.code), (TOP, 2))

    def test_rows_are_read_into_memory_of_the_program(self):
        out = np.full((2, 3), 9, dtype=np.float32)
        self.assertIs(self.table.pull([1, 2], out=out), out)
        self.assertTrue((out == 0.5).all())
        read_only = np.ones((2, 3), dtype=np.float32)
        read_only.flags.writeable = False
        for bad in (np.empty((2, 3)), np.empty((3, 3), dtype=np.float32), [0] * 6, read_only,
                    np.empty((2, 6), dtype=np.float32)[:, ::2]):
            self.assertRaises(embps.InvalidArgument, self.table.pull, [1, 2], out=bad)

    def test_states_tell_which_rows_were_pushed(self):
        self.table.push_delta(7, [1.0, 2, 3])
        rows, states = self.table.pull_states([[7, 8]])
        self.assertEqual(rows.tolist(), [[[1.5, 2.5, 3.5], [0.5] * 3]])
        self.assertEqual(states.tolist(), [[embps.RowState.PRESENT, embps.RowState.INITIAL]])
        rows, states = self.table.pull_within([7], 10)
        self.assertEqual((rows.tolist(), states.tolist()), ([[1.5, 2.5, 3.5]], [embps.RowState.PRESENT]))

    def test_random_calls_do_what_a_dictionary_does(self):
        generator = np.random.default_rng(python_tests.seed())
        model = {}
        pool = generator.integers(0, 2**64, 40, dtype=np.uint64)
        for _ in range(300):
            ids = generator.choice(pool, generator.integers(0, 30))
            # Small integers, so that sums are exact in any order.
            rows = generator.integers(-8, 9, (len(ids), 3)).astype(np.float32)
            kind = generator.integers(0, 4)
            if kind == 0:
                self.table.push_delta(ids, rows)
            elif kind == 1:
                self.table.push(ids, rows, 0.5)
                rows = rows * np.float32(-0.5)
            elif kind == 2:
                self.table.assign(ids, rows)
            for key, row in zip(ids.tolist(), rows):
                if kind == 2:
                    model[key] = row
                elif kind < 2:
                    model[key] = model.get(key, np.float32(0.5)) + row
            expected = np.array([model.get(key, np.full(3, 0.5)) for key in pool.tolist()])
            self.assertEqual(self.table.pull(pool).tolist(), expected.tolist())

    def test_a_table_has_the_options_it_was_given(self):
        table = self.client.table("adam", 2, optimizer=("adam", 0.5, 0.5, 1.0), bounds=(-0.25, 8), pad_id=3,
                                  init=("constant", 1), seed=9, pull_format="bf16", clip_value=2)
        table.set_step(1)
        table.push([1, 3], np.ones((2, 2)), lr=4.0)  # the first step of adam: rate * g / (|g| + eps)
        self.assertEqual(table.pull([1, 3]).tolist(), [[-0.25, -0.25], [0, 0]])
        with self.assertRaises(embps.Mismatch):
            self.client.table("adam", 3)
        for options in ({"optimizer": "none"}, {"optimizer": ("sgd", 1)}, {"init": ("uniform", "low")},
                        {"bogus": 1}, {"seed": -1}, {"precision": "f64"}, {"precision": 3}, {"init": ()},
                        {"pad_id": -1}, {"pad_id": 1.5}, {"l2": -1}):
            self.assertRaises(embps.InvalidArgument, self.client.table, "bad", 2, **options)
        for dim in (0, -1, 65537, 2**40, 1.0, "3", True):
            self.assertRaises(embps.InvalidArgument, self.client.table, "bad", dim)
        for dim in (0, -1, 65537):
            self.assertRaisesRegex(embps.InvalidArgument, f"dim: {dim} is not in 1 to 65536$",
                                   self.client.table, "bad", dim)
        for name in ("", "x" * 256, 7, "a\0b"):
            self.assertRaises(embps.InvalidArgument, self.client.table, name, 2)


class Arguments(python_tests.Case):
    """What callers give beside arrays: a value of the wrong kind or range is refused under its name."""

    NO_NUMBER = (None, "1", [], {}, True, np.True_, 1j, object(), np.ones(2))
    NO_INTEGER = (*NO_NUMBER, 1.0, np.float32(1), -1)
    NO_FLAG = (None, "yes", 1, 0, 1.0, [], np.int8(1))
    NO_TEXT = (5, b"a", [], "a\0b", "\ud800", "a\udc80")
    NO_SPEC = (5, None, 1.5, b"sgd", {}, {"sgd"}, (), [], (5, 1), (None,), ("sgd", "0.1"), ("sgd", True),
               ("sgd", None), ("sgd", np.nan), ("sgd", np.inf), ("sgd", *range(17)), "s\ud800", "s\0")
    NO_PATH = (5, [], "a\0b", b"a\0b", "\ud800", True)

    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.table = self.client.table("t", 2, optimizer="adagrad")

    def assert_named(self, name, values, call, *arguments, **options):
        """call(*arguments, name=value, **options) names the argument that is wrong."""
        for value in values:
            with self.assertRaises(embps.InvalidArgument, msg=f"{name}={value!r}") as caught:
                call(*arguments, **{name: value}, **options)
            self.assertRegex(str(caught.exception), rf"^(option |table )?{name}\b", f"{name}={value!r}")

    def test_of_connect(self):
        address = f"local:{self.folder / 'other'}"
        for name, values in (("memory", (None, 1.5, True, [], "1.5G", -1)), ("cluster", self.NO_INTEGER),
                             ("timeout", (*self.NO_NUMBER[1:], 0, -1, np.nan, np.inf, 1e9)),
                             ("wait", (*self.NO_NUMBER, -1, np.nan, np.inf, 1e9)),
                             ("waiting", (5, "print")), ("plain_text", self.NO_FLAG)):
            for place in (address, "127.0.0.1:1"):
                self.assert_named(name, values, embps.connect, place)
        self.assertRaisesRegex(embps.InvalidArgument, "^wait: -1 s; from 0 on is wanted$", embps.connect, address, wait=-1)
        for name in ("tls_ca", "tls_cert", "tls_key", "token_file"):
            self.assert_named(name, self.NO_PATH, embps.connect, "127.0.0.1:1")
        self.assert_named("address", (None, 5, b"local:x", "local:", "local:a\0b", "local:\ud800", "a:\ud800"),
                          embps.connect)
        self.assert_named("n", (*self.NO_INTEGER, 0, 4097, 2**32), embps.connect_many, address)
        self.assert_named("memory", (None, 1.5, "x"), embps.connect_many, address, 1)
        self.assertFalse((self.folder / "other").exists())

    def test_of_a_table(self):
        make = self.client.table
        self.assert_named("name", (*self.NO_TEXT, None, "", "x" * 256, "\u00e4" * 128), make, dim=2)
        self.assert_named("dim", (*self.NO_INTEGER, 0, 65537, 2**40), make, "bad")
        self.assert_named("seed", (*self.NO_INTEGER, 2**64), make, "bad", 2)
        for name in ("init", "optimizer"):
            self.assert_named(name, self.NO_SPEC, make, "bad", 2)
        self.assert_named("bounds", (3, "ab", (1,), (1, 2, 3), (0, "1"), (0, None), (2, 1), (0, np.inf), (np.nan, 1)),
                          make, "bad", 2)
        for name in ("pad_id", "admit_after", "admit_counters", "expire_after", "expire_rare_after",
                     "expire_rare_below", "expire_floor"):
            # NO_INTEGER begins with None, which is no pad.
            self.assert_named(name, (*self.NO_INTEGER[name == "pad_id":], 2**64), make, "bad", 2)
        for name in ("l2", "clip_value", "clip_norm"):
            self.assert_named(name, (*self.NO_NUMBER, np.nan, np.inf, -np.inf), make, "bad", 2)
        for name in ("per_row_steps", "admit_shared", "expire_dry_run"):
            self.assert_named(name, self.NO_FLAG, make, "bad", 2)
        for name in ("precision", "state_precision", "pull_format", "push_format"):
            self.assert_named(name, (*self.NO_TEXT, "f64"), make, "bad", 2)
        self.assertEqual([info.name for info in self.client.tables()], ["t"])

    def test_of_rows(self):
        ones = np.ones((2, 2))
        for call in (self.table.pull, self.table.pull_states, self.table.pull_async):
            for name in ("scan", "exact"):
                self.assert_named(name, self.NO_FLAG, call, [1, 2])
            self.assert_named("out", (5, [[0, 0], [0, 0]], np.empty((2, 2)), np.frombuffer(
                bytearray(17), np.float32, 4, 1).reshape(2, 2)), call, [1, 2])
        self.assert_named("seconds", (*self.NO_NUMBER, 0, -1, np.nan, np.inf), self.table.pull_within, [1])
        for call in (self.table.push, self.table.push_async):
            self.assert_named("lr", (*self.NO_NUMBER, np.nan, np.inf, 1e39, -1e39), call, [1, 2], ones)
        for values in (object(), "x", None, [[1.0, 2.0], [3.0]], {1: 2}, ones > 0, ones * 1j):
            self.assert_named("values", [values], self.table.import_rows, [1, 2])
            self.assert_named("grads", [values], self.table.push, [1, 2], lr=1)
            if values is not None:
                self.assert_named("state", [values], self.table.import_rows, [1, 2], ones)
                self.assert_named("counts", [values], self.table.import_rows, [1, 2], ones)
        self.assert_named("clock", self.NO_INTEGER, self.table.prefetch, [1])
        self.assert_named("step", self.NO_INTEGER, self.table.set_step)
        self.assert_named("state", self.NO_FLAG, self.table.export_blocks)
        self.assert_named("values", self.NO_FLAG, self.table.watch)
        watch = self.table.watch()
        self.assert_named("seconds", (*self.NO_NUMBER[1:], -1, np.nan, np.inf), watch.next)
        self.assertIsNone(watch.next(0))

    def test_of_a_client(self):
        self.assert_named("progress", (*self.NO_INTEGER, 2**64), self.client.clock)
        self.assert_named("progress", self.NO_INTEGER, self.client.last_clock)
        self.assert_named("clocks", (*self.NO_INTEGER[1:], 2**32), self.client.set_staleness)
        self.assert_named("size", (None, 1.5, True, "x", -1), self.client.set_cache)
        self.assert_named("flush_clocks", (*self.NO_INTEGER, 0, 1001), self.client.set_cache, "1M")
        self.assertEqual(self.client.stats()["client.cache.bytes"], 0)
        self.assert_named("seconds", (*self.NO_NUMBER[1:], 0, -1, np.nan), self.client.set_timeout)
        self.assert_named("state", (None, "text", 5, [1]), self.client.checkpoint)
        self.assert_named("name", (*self.NO_TEXT, ""), self.client.checkpoint_state)
        future = self.table.pull_async([1])
        for call in (future.result, future.exception):
            self.assert_named("timeout", (*self.NO_NUMBER[1:], -1, np.nan, np.inf), call)

    def test_numbers_of_numpy_are_as_good(self):
        table = self.client.table("u", np.uint8(2), init=["constant", np.float32(1)], seed=np.int64(3),
                                  optimizer=("sgd",), bounds=np.array([-4.0, 4.0]), pad_id=np.uint64(TOP),
                                  l2=np.float16(0), clip_norm=np.array(2.0), per_row_steps=np.False_)
        table.push([1], [[1, 0]], lr=np.float64(0.5))
        self.assertEqual(table.pull([1], scan=np.True_).tolist(), [[0.5, 1]])
        table.set_step(np.int32(1))
        self.client.set_timeout(np.float32(60))
        self.client.set_cache(np.int64(2**20), np.int8(2))
        self.assertEqual(self.client.clock(np.uint64(5)), 5)
        self.assertEqual(table.pull_async([1]).result(np.float32(30)).tolist(), [[0.5, 1]])

    def test_rows_and_ids_may_begin_anywhere_in_memory(self):
        ids = np.frombuffer(bytearray(b"\0\1" + bytes(15)), np.uint64, 2, 1)
        rows = np.frombuffer(bytearray(17), np.float32, 4, 1).reshape(2, 2)
        self.assertFalse(ids.flags.aligned or rows.flags.aligned)
        rows[:] = [[1, 2], [3, 4]]
        self.table.assign(ids, rows)
        self.assertEqual(self.table.pull([1, 0]).tolist(), [[1, 2], [3, 4]])


class Futures(python_tests.Case):
    def setUp(self):
        super().setUp()
        self.client = self.connect()
        self.table = self.client.table("rows", 4)

    def test_a_pull_never_sees_a_later_push(self):
        before = self.table.pull_async([1])
        push = self.table.push_delta_async([1], np.ones((1, 4)))
        after = self.table.pull_async([1])
        self.assertEqual(after.result().tolist(), [[1] * 4])
        self.assertEqual(before.result().tolist(), [[0] * 4])
        self.assertIsNone(push.result())
        self.assertTrue(before.done() and push.done())
        self.assertIs(before.result(), before.result())

    def test_results_are_waited_for_so_long_at_most(self):
        clients = embps.connect_many(f"local:{self.folder / 'two'}", 2, memory="16M")
        for client in clients:
            self.addCleanup(client.close)
            client.set_staleness(0)
        table = clients[0].table("t", 2, init=("constant", 3))
        clients[0].clock()
        future = table.pull_async([1])  # waits for the other worker's clock
        for wait in (future.result, future.exception):
            for seconds in (0, 0.02):
                with self.assertRaises(TimeoutError) as caught:
                    wait(seconds)
                self.assertNotIsInstance(caught.exception, embps.Error)
        self.assertFalse(future.done())

        async def await_(seconds):
            return await asyncio.wait_for(future, seconds)

        def end_clock():
            with self.assertRaises(asyncio.TimeoutError):
                asyncio.run_coroutine_threadsafe(await_(0.02), loop).result()
            clients[1].clock()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        end_clock()
        rows = asyncio.run_coroutine_threadsafe(await_(None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        self.assertEqual(rows.tolist(), [[3, 3]])
        self.assertIs(future.result(0), rows)
        self.assertIsNone(future.exception(timeout=0))

    def test_a_result_is_not_waited_for_behind_other_threads(self):
        future = self.table.pull_async([1])
        with python_tests.held(self.client):  # as by a thread that waits at a barrier
            self.assertRaises(TimeoutError, future.result, 0)
            self.assertRaises(TimeoutError, future.exception, 0.01)
            self.assertFalse(future.done())
        self.assertEqual(future.result(60).tolist(), [[0] * 4])

    def test_the_error_of_a_call_is_told_or_raised(self):
        def fail(record, *call, note=library.note):
            note(record, *call)
            record.said.code, record.said.message = embps.PeerGone.code, b"gone"
        future = self.table.pull_async([1])
        with mock.patch.object(library, "note", side_effect=fail):
            self.assertIsInstance(future.exception(60), embps.PeerGone)
        self.assertIs(future.exception(), future.exception(0))
        for timeout in (None, 0):
            self.assertRaises(embps.PeerGone, future.result, timeout)

    def test_futures_can_be_awaited(self):
        async def train():
            await self.table.assign_async([1, 2], np.ones((2, 4)))
            await self.table.push_async([1], np.ones((1, 4)), lr=1.0)
            return await asyncio.gather(*(self.table.pull_async([i]) for i in (1, 2)))
        one, two = asyncio.run(train())
        self.assertEqual((one.tolist(), two.tolist()), ([[0] * 4], [[1] * 4]))

    def test_a_future_keeps_its_client(self):
        client = embps.connect(f"local:{self.folder / 'other'}", memory="16M")
        future = client.table("t", 2, init=("constant", 3)).pull_async([1])
        del client
        gc.collect()
        self.assertEqual(future.result().tolist(), [[3, 3]])

    def test_dropped_futures_are_applied_and_keep_their_memory(self):
        for step in range(200):
            self.table.push_delta_async(np.arange(50), np.ones((50, 4)))
            self.table.pull_async(np.arange(1000 * (step % 7)))
        gc.collect()
        self.client.flush()
        self.assertTrue((self.table.pull(np.arange(50)) == 200).all())

    def test_the_first_error_of_a_dropped_future_is_not_lost(self):
        clients = embps.connect_many(f"local:{self.folder / 'two'}", 2, memory="8M")
        for client in clients:  # in step, so that the pushes of a clock are kept in the server's memory
            client.set_staleness(0)
        table = clients[0].table("wide", 4096)
        for start in range(0, 4096, 256):
            table.push_delta_async(np.arange(start, start + 256), np.ones((256, 4096)))
        gc.collect()
        with self.assertRaises(embps.InvalidArgument):
            clients[0].flush()
        clients[0].flush()
        for client in clients:
            client.close()

    def test_a_dropped_future_is_ended_when_its_client_has_failed(self):
        def fail(record, *call):
            ended.append((*call[:2], call[2].value))
            record.said = library.ErrorStruct(code=embps.PeerGone.code, message=b"gone")
        session, ended = requests.Session(ctypes.c_void_p(1)), []
        record = requests.Record(session, session, requests.REQUEST_END)
        record.handle.value = 2
        session.living.add(record)
        session.dropped.append(record)
        with mock.patch.object(library, "call", side_effect=embps.PeerGone("gone")) as call, \
                mock.patch.object(library, "note", side_effect=fail):
            session.run(int)
        self.assertEqual([made.args[0] for made in call.call_args_list], ["embps_test"])
        self.assertEqual(ended, [("said", "embps_wait", 2)])
        self.assertIsInstance(session.unseen, embps.PeerGone)
        self.assertFalse(session.dropped or session.living)

    def test_results_after_the_end_say_that_the_client_is_closed(self):
        done, open_ = self.table.pull_async([1]), self.table.pull_async([2])
        done.result()
        self.client.close()
        self.assertEqual(done.result().tolist(), [[0] * 4])
        self.assertRaises(embps.Closed, open_.result)


class Clients(python_tests.Case):
    def test_the_end_of_the_block_closes_and_calls_then_fail(self):
        with self.connect() as client:
            table = client.table("t", 2)
        client.close()
        for call in (lambda: table.pull([1]), client.stats, client.barrier, lambda: client.table("t", 2)):
            self.assertRaises(embps.Closed, call)
        with self.assertRaisesRegex(embps.Closed, "the client is closed"), client:
            self.fail("a closed client is entered")

    def test_a_directory_with_tables_is_refused(self):
        with self.connect() as client:
            client.table("t", 2).push_delta([1], np.ones((1, 2)))
            with self.assertRaises((embps.InUse, embps.Unclean)) as caught:
                embps.connect(f"local:{self.folder / 'data'}")
            self.assertIsInstance(caught.exception, OSError)
        with self.assertRaises(embps.Unclean):
            embps.connect(f"local:{self.folder / 'data'}")

    def test_addresses_and_sizes_that_cannot_be_are_refused(self):
        for address in ("local:", "nowhere", "", "host:port", "host:", ":1", "1.2.3.4:65536", None, b"local:x",
                        "local:a\0b"):
            self.assertRaises(embps.InvalidArgument, embps.connect, address)
        address = f"local:{self.folder / 'data'}"
        for memory in ("", "1.5G", "1M", -1, 1.0, True, "99999999999T"):
            self.assertRaises(embps.InvalidArgument, embps.connect, address, memory=memory)
        for timeout in (0, -1, float("nan"), 1e9):
            self.assertRaises(embps.InvalidArgument, embps.connect, f"{address}-{timeout}", timeout=timeout)

    def test_a_client_that_is_forgotten_is_closed(self):
        client = embps.connect(f"local:{self.folder / 'data'}")
        client.table("t", 2).push_delta_async([1], np.ones((1, 2)))
        del client
        gc.collect()
        # Written and closed, so not in use any more.
        self.assertRaises(embps.Unclean, embps.connect, f"local:{self.folder / 'data'}")

    def test_the_interpreter_ends_with_clients_open(self):
        program = ("import embps, numpy, sys\n"
                   f"client = embps.connect('local:{self.folder / 'data'}')\n"
                   "table = client.table('t', 2)\n"
                   "future = table.pull_async(numpy.arange(1000))\n"
                   "table.push_delta_async([1], numpy.ones((1, 2)))\n")
        environment = {**os.environ, "PYTHONPATH": str(python_tests.ROOT / "worker" / "python")}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)

    def test_a_forked_child_is_told_to_connect_itself(self):
        client = self.connect()
        table = client.table("t", 2)
        child = os.fork()
        if child == 0:
            try:
                table.pull([1])
            except embps.Closed:
                client.close()
                os._exit(5)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 5)
        self.assertEqual(table.pull([1]).tolist(), [[0, 0]])

    def test_clients_and_tables_are_not_copied(self):
        client = self.connect()
        self.assertRaises(TypeError, copy.deepcopy, client)
        self.assertRaises(TypeError, copy.deepcopy, client.table("t", 2))

    def test_threads_share_one_client(self):
        table = self.connect().table("t", 2)

        def work():
            for _ in range(50):
                table.push_delta_async(np.arange(20), np.ones((20, 2))).done()
                table.pull(np.arange(20))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue((table.pull(np.arange(20)) == 200).all())

    def test_workers_in_step_see_what_all_pushed_in_earlier_clocks(self):
        clients = embps.connect_many(f"local:{self.folder / 'data'}", 2, memory="16M")
        seen = [[], []]

        def work(rank):
            with clients[rank] as client:
                client.set_staleness(0)
                table = client.table("t", 1)
                for _ in range(5):
                    seen[rank].append(float(table.pull(1)[0]))
                    table.push_delta(1, [rank + 1.0])
                    client.clock()
                client.barrier()
                seen[rank].append((client.worker_rank, client.worker_count, client.server_count))
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank in range(2):
            self.assertEqual(seen[rank], [0, 3, 6, 9, 12, (rank, 2, 1)])

    def test_clocks_and_statistics_are_told(self):
        client = self.connect()
        table = client.table("t", 2)
        client.set_cache("1M", 2)
        table.push_delta([1, 2], np.ones((2, 2)))
        table.prefetch([1, 2], clock=1)
        self.assertEqual(client.clock(7), 7)
        self.assertEqual(client.last_clock(8), 8)
        self.assertTrue(any(name.startswith("client.") for name in client.stats()))
        self.assertTrue(all(n > 0 for n in client.traffic()))
        self.assertRaises(embps.InvalidArgument, client.set_cache, 1)
        self.assertRaises(embps.InvalidArgument, client.clock, -1)

    def test_tables_are_listed_as_they_were_made(self):
        client = self.connect()
        self.assertEqual(client.tables(), [])
        given = {"init": ("normal", 0.0, 0.5), "optimizer": ("adam", 0.5, 0.75, 1e-6), "seed": TOP,
                 "precision": "bf16", "state_precision": "bf16", "per_row_steps": True, "l2": 0.25,
                 "clip_value": 2.0, "clip_norm": 3.0, "bounds": (-1.5, 2.5), "pad_id": TOP - 1,
                 "admit_after": 3, "admit_shared": True, "admit_counters": 64, "expire_after": 9,
                 "expire_rare_after": 5, "expire_rare_below": 4, "expire_floor": 2, "expire_dry_run": True}
        client.table("\u00e4ll", 3, **given)
        client.table("plain", 2).push_delta([1, 2], np.ones((2, 2)))
        every, plain = client.tables()
        self.assertEqual((every.name, every.dim, every.rows_created), ("\u00e4ll", 3, 0))
        self.assertEqual({**given, **every.options}, every.options)
        self.assertEqual({name: tuple(np.float32(value)) if name == "bounds" else value
                          for name, value in every.options.items()}, {**given})
        self.assertEqual((plain.name, plain.dim, plain.rows_created), ("plain", 2, 2))
        self.assertEqual([plain.options[name] for name in ("init", "optimizer", "precision", "bounds", "pad_id")],
                         ["zeros", "sgd", "f32", None, None])
        for info in (every, plain):  # what is told opens it again
            self.assertEqual(client.table(info.name, info.dim, **info.options).dim, info.dim)
        self.assertEqual(len(client.tables()), 2)

    def test_a_table_is_exported_and_goes_on_elsewhere(self):
        random = np.random.default_rng(3)
        first, second = self.connect(), embps.connect(f"local:{self.folder / 'other'}", memory="16M")
        self.addCleanup(second.close)
        options = {"init": "normal", "optimizer": "adam", "precision": "bf16"}
        table, copy_ = (client.table("t", 4, **options) for client in (first, second))
        ids = random.integers(0, 2**64, 3000, dtype=np.uint64)
        gradients = random.standard_normal((3000, 4)).astype(np.float32)
        table.push(ids, gradients, 0.1)
        found = {}
        for some, values in table.export():
            self.assertEqual((some.dtype, values.dtype, values.shape), (np.uint64, np.float32, (len(some), 4)))
            found.update(zip(some.tolist(), values.tolist()))
        self.assertEqual(found, dict(zip(ids.tolist(), table.pull(ids).tolist())))
        created = sum(copy_.import_rows(*block) for block in table.export_blocks(state=True))
        self.assertEqual(created, len(set(ids.tolist())))
        table.push(ids, gradients, 0.1)
        copy_.push(ids, gradients, 0.1)
        self.assertTrue(np.array_equal(table.pull(ids), copy_.pull(ids)))

    def test_exports_end_early_are_forgotten_and_end_with_their_client(self):
        client = self.connect()
        table = client.table("t", 2)
        table.assign(np.arange(2000), np.ones((2000, 2)))
        walk = table.export_blocks()
        self.assertGreater(len(next(walk).ids), 0)
        walk.close()
        walk.close()
        self.assertEqual(list(walk), [])
        for _ in table.export():
            break  # the rest is forgotten
        gc.collect()
        self.assertEqual(sum(len(ids) for ids, _ in table.export()), 2000)
        left = table.export_blocks(state=True)
        block = next(left)
        self.assertIsNone(block.state)  # sgd has none
        self.assertEqual(block.counts.shape, (len(block.ids), 2))
        client.close()
        self.assertRaises(embps.Closed, table.export_blocks)
        self.assertRaises(embps.Closed, next, left)  # not as if that had been all
        self.assertEqual(list(walk), [])

    def test_who_watches_is_told_what_is_pushed(self):
        client = self.connect()
        table = client.table("t", 2)
        with_values, plain = table.watch(values=True), table.watch()
        self.assertIsNone(with_values.next(0))
        table.assign([5, 2**64 - 1], [[1.0, 2.0], [3.0, 4.0]])
        changes = with_values.next(20)
        self.assertEqual((changes.ids.tolist(), changes.values.tolist(), changes.lost),
                         ([5, 2**64 - 1], [[1, 2], [3, 4]], False))
        self.assertEqual(next(plain).ids.tolist(), [5, 2**64 - 1])
        seen = []

        def watch():
            for changes in plain:
                self.assertIsNone(changes.values)
                seen.extend(changes.ids.tolist())
                if 99 in seen:
                    plain.close()
        thread = threading.Thread(target=watch)
        thread.start()
        for row in range(10, 100):  # the client is free for others
            table.push_delta([row], np.ones((1, 2)))
        thread.join()
        self.assertEqual(sorted(set(seen)), list(range(10, 100)))
        self.assertRaisesRegex(embps.Closed, "the watch is closed", plain.next, 0)
        self.assertRaises(StopIteration, next, plain)
        client.close()
        self.assertRaises(embps.Closed, table.watch)
        self.assertRaises(embps.Closed, next, with_values)
        self.assertRaises(embps.Closed, plain.next)

    def test_what_cannot_be_imported_is_refused(self):
        table = self.connect().table("t", 2, optimizer="adagrad")
        ones = np.ones((2, 2))
        self.assertEqual(table.import_rows([1, 2], ones), 2)
        self.assertEqual(table.import_rows([[1], [3]], np.ones((2, 1, 2)), np.ones((2, 1, 2)),
                                           np.ones((2, 1, 2), dtype=np.int64)), 1)
        for arguments in ((np.full((2, 2), np.nan),), (np.ones((2, 3)),), (ones, np.ones(2)),
                          (ones, np.full((2, 2), np.inf)), (ones, ones, ones), (ones, ones, np.full((2, 2), -1)),
                          (ones, ones, np.ones((2, 3), dtype=int))):
            self.assertRaises(embps.InvalidArgument, table.import_rows, [1, 2], *arguments)
        self.assertRaises(embps.Mismatch, table.import_rows, [1, 2], ones, np.ones((2, 3)))


if __name__ == "__main__":
    unittest.main()
