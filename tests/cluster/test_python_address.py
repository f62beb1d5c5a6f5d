#!/usr/bin/env python3
"""Python clients of a server in a process of its own: they come and go, and are told when it does."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy")
import numpy as np  # noqa: E402

import embps  # noqa: E402


class Address(python_tests.Case):
    def setUp(self):
        super().setUp()
        self.address = self.serve()

    def guest(self, **options):
        client = embps.connect(self.address, **options)
        self.addCleanup(client.close)
        return client

    def test_a_checkpoint_keeps_tables_and_bytes(self):
        options = ("--checkpoints", self.folder / "saved")
        state = bytes(range(256)) * 3000
        with embps.connect(self.serve(*options, data="saved-data")) as client:
            self.assertIsNone(client.last_checkpoint)
            with self.assertRaises(embps.NotFound):
                client.checkpoint_state()
            with self.assertRaises(embps.InvalidArgument):
                client.checkpoint("text")
            table = client.table("t", 2, optimizer="adam")
            table.push([1, 2], np.ones((2, 2)), lr=0.1)
            then = table.pull([1, 2])
            name = client.checkpoint(state)
            self.assertEqual(name, client.last_checkpoint)
            self.assertEqual(client.checkpoint_state(), state)
            table.push([1, 2], np.ones((2, 2)), lr=0.1)
            later = table.pull([1, 2])
        self.processes[-1].kill()
        self.processes[-1].wait()
        with embps.connect(self.serve(*options, data="saved-data")) as client:
            self.assertEqual(client.checkpoint_state(name), state)
            table = client.table("t", 2, optimizer="adam")
            self.assertEqual(table.pull([1, 2]).tolist(), then.tolist())
            table.push([1, 2], np.ones((2, 2)), lr=0.1)
            self.assertEqual(table.pull([1, 2]).tolist(), later.tolist())
            with self.assertRaises(embps.Mismatch):
                client.table("t", 3, optimizer="adam")

    def test_servers_without_checkpoints_say_so(self):
        with self.assertRaisesRegex(embps.Unsupported, "--checkpoints"):
            self.guest().checkpoint()

    def test_clients_that_come_and_go_share_tables(self):
        with self.guest() as first:
            first.table("t", 3, init=("constant", 1)).push_delta([1, 2**64 - 1], np.ones((2, 3)))
            number = first.cluster
        second = self.guest(cluster=number)
        self.assertEqual((second.cluster, second.server_count, second.worker_count), (number, 1, 0))
        table = second.table("t", 3, init=("constant", 1))
        self.assertEqual(table.pull([1, 2, 2**64 - 1])[:, 0].tolist(), [2, 1, 2])
        with self.assertRaises(embps.Mismatch):
            second.table("t", 4)
        futures = [table.push_delta_async(np.arange(100), np.ones((100, 3))) for _ in range(20)]
        self.assertEqual(self.guest().table("t", 3, init=("constant", 1)).pull([500]).tolist(), [[1, 1, 1]])
        for future in futures:
            future.result()
        self.assertEqual(table.pull([50]).tolist(), [[21, 21, 21]])
        # A batch of many messages.
        wide = second.table("wide", 1000)
        rows = np.arange(3_000_000, dtype=np.float32).reshape(3000, 1000)
        wide.assign(np.arange(3000), rows)
        self.assertTrue(np.array_equal(wide.pull(np.arange(3000)), rows))

    def test_a_client_that_is_killed_harms_nobody(self):
        table = self.guest().table("t", 2)
        program = ("import sys, embps, numpy\n"
                   "table = embps.connect(sys.argv[1]).table('t', 2)\n"
                   "table.push_delta([1], numpy.ones((1, 2)))\n"
                   "print('pushed', flush=True)\n"
                   "while True: table.push_delta_async([2], numpy.ones((1, 2)))\n")
        environment = {**os.environ, "PYTHONPATH": str(python_tests.ROOT / "worker" / "python")}
        other = self.start([sys.executable, "-c", program, self.address], env=environment,
                           stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.stdout.close)
        self.assertEqual(other.stdout.readline(), "pushed\n")
        other.send_signal(signal.SIGKILL)
        other.wait()
        rows = table.pull([1, 2])
        self.assertEqual(rows[0].tolist(), [1, 1])
        self.assertEqual(rows[1, 0], rows[1, 1])

    def test_where_nobody_answers_that_is_said(self):
        self.processes[0].terminate()
        self.processes[0].wait()
        with self.assertRaises(embps.PeerGone) as caught:
            embps.connect(self.address, wait=0)
        self.assertIsInstance(caught.exception, ConnectionError)
        self.assertIn(self.address, str(caught.exception))
        lines = []
        with self.assertRaises(embps.PeerGone):
            embps.connect(self.address, wait=2.5, waiting=lines.append)
        self.assertTrue(lines and all(isinstance(line, str) for line in lines), lines)

    def test_another_run_is_refused(self):
        number = self.guest().cluster
        with self.assertRaises(embps.Mismatch):
            embps.connect(self.address, cluster=number ^ 1)

    def test_calls_end_when_the_server_has(self):
        client = self.guest(timeout=5)
        table = client.table("t", 2)
        future = table.pull_async([1])
        future.result()
        self.processes[0].kill()
        self.processes[0].wait()
        with self.assertRaises((embps.Timeout, embps.PeerGone)):
            table.pull([1])
        with self.assertRaises((embps.Timeout, embps.PeerGone)):
            table.push_delta_async([1], np.ones((1, 2))).result()
        client._finalizer()  # as the collector would: nobody is told, nothing hangs
        del client, table, future
        gc.collect()

    def test_a_forked_child_is_told_to_connect_itself(self):
        table = self.guest().table("t", 2)
        child = os.fork()
        if child == 0:
            try:
                table.pull([1])
            except embps.Closed:
                pass
            try:
                embps.connect(self.address, wait=1)
            except embps.Unsupported:
                os._exit(5)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 5)
        self.assertEqual(table.pull([1]).tolist(), [[0, 0]])


if __name__ == "__main__":
    unittest.main()
