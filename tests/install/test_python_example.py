#!/usr/bin/env python3
"""The example: it learns, and after a kill it goes on with the losses of a run that was left alone."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy", "torch")
import torch  # noqa: E402

import embps  # noqa: E402

EXAMPLES = python_tests.ROOT / "worker" / "python" / "examples"
EXAMPLE = EXAMPLES / "language_model.py"
TEXT = python_tests.ROOT / "README.md"


class Example(python_tests.Case):
    def environment(self):
        return {**os.environ, "PYTHONPATH": str(python_tests.ROOT / "worker" / "python"), "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo"}

    def train(self, checkpoint, *more, **options):
        arguments = [sys.executable, EXAMPLE, "--text", TEXT,
                     *(["--checkpoint", checkpoint] if checkpoint else []), "--data", self.folder, "--optimizer", "sgd", "--table-rate", "0.5", "--steps", "60",
                     "--save-every", "20", "--vocabulary", "300", "--dim", "16", "--memory", "16M", *more]
        process = self.start(arguments, env=self.environment(), text=True, stdout=subprocess.PIPE, **options)
        self.addCleanup(process.stdout.close)
        return process

    def first_line(self, process):
        """The first line but for the one that tells that training has begun."""
        line = process.stdout.readline()
        if not line.startswith("goes on"):
            self.assertRegex(line, "^step 1 loss [0-9.]+, saved every 20$")
            line = process.stdout.readline()
        return line.rstrip()

    def lines(self, process):
        """All lines but for that one, which is not that of a step that was saved."""
        lines = process.communicate()[0].splitlines()
        self.assertEqual(process.returncode, 0)
        return [line for line in lines if not line.endswith(", saved every 20")]

    def test_a_killed_run_goes_on_with_the_same_losses(self):
        process = self.train(self.folder / "whole.pt")
        whole = self.lines(process)
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", "\n".join(whole))]
        self.assertEqual(len(losses), 3)
        self.assertLess(losses[-1], losses[0] - 0.1)

        process = self.train(self.folder / "killed.pt")
        lines = [self.first_line(process)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(lines, whole[:1])

        process = self.train(self.folder / "killed.pt")
        resumed = self.lines(process)
        self.assertRegex(resumed[0], r"^goes on from step (20|40|60) ")
        self.assertEqual(whole[-len(resumed) + 1:-1], resumed[1:-1])

    def test_servers_and_program_that_are_killed_go_on_from_one_checkpoint(self):
        def serve(name):
            return self.serve("--checkpoints", self.folder / name, data=f"{name}-data")

        def train(address, *more):
            return self.train(None, "--connect", address, "--optimizer", "adagrad", "--table-rate", "0.05", *more)

        whole = self.lines(train(serve("whole")))
        self.processes[0].kill()
        address = serve("killed")
        server = self.processes[-1]
        process = train(address)
        first = self.first_line(process)
        process.send_signal(signal.SIGKILL)
        server.send_signal(signal.SIGKILL)
        process.wait()
        server.wait()
        self.assertEqual(first, whole[0])

        process = train(serve("killed"))
        resumed = self.lines(process)
        self.assertRegex(resumed[0], r"^goes on from step (20|40|60) of the servers")
        self.assertEqual(whole[-len(resumed) + 1:-1], resumed[1:-1])

    def test_servers_that_ended_in_order_go_on_where_the_program_saved(self):
        small = ("--batch", "2", "--context", "8")

        def serve(*more):
            address = self.serve("--checkpoints", self.folder / "saved", *more)
            return self.processes[-1], address

        server, address = serve()
        with embps.connect(address) as client:
            client.checkpoint()  # somebody else's, before the program has begun
        process = self.train(None, "--connect", address, "--steps", "40", *small)
        self.assertRegex(process.communicate()[0], "(?m)^step 40 loss ")
        self.assertEqual(process.returncode, 0)
        server.terminate()
        self.assertEqual(server.wait(), 0)

        own = max((self.folder / "saved").glob("*/state")).parent.name
        _, address = serve("--resume", own)
        process = self.train(None, "--connect", address, *small)
        said = self.lines(process)
        self.assertEqual(said[0], "goes on from step 40 of the servers")
        self.assertRegex(said[1], "^step 60 loss ")

    def test_rows_on_servers_outlive_a_killed_run(self):
        address = self.serve()
        process = self.train(self.folder / "served.pt", "--connect", address)
        first = self.first_line(process)
        self.assertRegex(first, "^step 20 loss ")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = self.train(self.folder / "served.pt", "--connect", address, "--steps", "80")
        resumed = self.lines(process)
        self.assertRegex(resumed[0], r"^goes on from step (20|40|60) ")
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", "\n".join([first, *resumed]))]
        self.assertLess(losses[-1], losses[0])

    def refused(self, program, common, cases):
        """What the program says to each of the cases, arguments after the common ones: one line, and the end. All
        in one process: PyTorch takes seconds to begin."""
        runner = (f"import runpy, sys\n"
                  f"for more in {[[str(each) for each in more] for more in cases]!r}:\n"
                  f"    sys.argv = [{program.name!r}, *{[str(each) for each in common]!r}, *more]\n"
                  f"    try:\n"
                  f"        runpy.run_path({str(program)!r}, run_name='__main__')\n"
                  f"    except SystemExit as end:\n"
                  f"        print('error:' if isinstance(end.code, str) else 'ends with', end.code, file=sys.stderr)\n"
                  f"    else:\n"
                  f"        raise AssertionError(more)\n")
        said = subprocess.run([sys.executable, "-c", runner], env=self.environment(), text=True, stderr=subprocess.PIPE,
                              check=False)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertNotIn("Traceback", said.stderr)
        errors = re.findall("^(?:.*: )?error: (.*)", said.stderr, re.MULTILINE)
        self.assertEqual(len(errors), len(cases), said.stderr)
        return errors

    def test_arguments_that_cannot_be_are_told_at_the_start(self):
        (self.folder / "file").write_text("text", encoding="ascii")
        (self.folder / "no.xz").write_text("text", encoding="ascii")
        (self.folder / "odd.u16.bin").write_text("odd", encoding="ascii")
        torch.save({"step": 1, "vocabulary": ["?"], "model": {}, "parts": []}, self.folder / "another.pt")
        torch.save({"step": 1, "vocabulary": ["?"], "model": {"places": torch.zeros(32, 8)}, "parts": []},
                   self.folder / "narrow.pt")
        (self.folder / "damaged.pt").write_bytes((self.folder / "another.pt").read_bytes()[:300])
        cases = [(option, self.folder / path) for option, path in (
            ("--text", "none"), ("--text", "."), ("--text", "no.xz"), ("--text", "odd.u16.bin"),
            ("--checkpoint", "none/x.pt"), ("--checkpoint", "file/x.pt"), ("--checkpoint", "file"), ("--checkpoint", "."),
            ("--checkpoint", "another.pt"), ("--checkpoint", "narrow.pt"), ("--checkpoint", "damaged.pt"),
            ("--data", "none"), ("--data", "file"))]
        cases += [(option, "") for option in ("--connect", "--data", "--memory", "--optimizer")]
        cases += [("--save-every", "0"), ("--steps", "-1"), ("--layers", "two"), ("--rate", "nan"), ("--table-rate", "-1"),
                  ("--seed", "-5"), ("--heads", "3"), ("--optimizer", "foo"), ("--memory", "much"), ("--connect", "nobody")]
        common = ("--text", TEXT, "--checkpoint", self.folder / "x.pt", "--memory", "16M")
        for (option, value), error in zip(cases, self.refused(EXAMPLE, common, cases)):
            self.assertIn(option.removeprefix("--") if option == "--optimizer" else option, error)  # as the library says
            self.assertIn(str(value).removesuffix("/x.pt"), error)
            self.assertNotIn("at_least_one", error)
            self.assertLess(len(error), 400, error)
            if "narrow" in str(value):
                self.assertIn("--dim", error)
            if "damaged" in str(value):
                self.assertIn("it is damaged, or another program's", error)
            if value == "":
                self.assertIn("empty", error)
        cases = [("--processes", "0"), ("--steps", "-1"), ("--dim", "x"), ("--batch", "7"), ("--connect", "nobody"), ("--connect", ""),
                 ("--table", "")]
        for (option, value), error in zip(cases, self.refused(EXAMPLES / "distributed.py", ("--connect", "127.0.0.1:1"),
                                                              cases)):
            self.assertIn(option, error)
            self.assertIn(value, error)

    def test_servers_that_keep_no_checkpoints_are_told_at_the_start(self):
        process = self.train(None, "--connect", self.serve(), stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        out, said = process.communicate()
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertRegex(said, "without --checkpoint the servers keep the layers.*--checkpoints")
        self.assertNotIn("Traceback", said)

    def test_a_signal_ends_a_run_with_one_line_and_no_folder_left(self):
        for number, first in ((signal.SIGINT, "^step 20 loss "), (signal.SIGTERM, "^goes on from step ")):
            process = self.train(self.folder / "x.pt", "--steps", "1000000", "--batch", "2", "--context", "8",
                                 stderr=subprocess.PIPE)
            self.addCleanup(process.stderr.close)
            self.assertRegex(self.first_line(process), first)
            process.send_signal(number)
            said = process.communicate()[1]
            self.assertEqual((process.returncode, said.count("\n")), (7, 1), said)
            self.assertIn("stopped by a signal", said)
            self.assertEqual(list(self.folder.glob("embps-*")), [])

    def test_a_signal_to_a_program_that_started_processes_ends_them(self):
        process = self.start([sys.executable, EXAMPLES / "distributed.py", "--connect", self.serve(), "--steps", "1000000",
                              "--batch", "16"],
                             env={**self.environment(), "TMPDIR": str(self.folder)}, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))  # as a script's "&" does
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.assertRegex(process.stdout.readline(), "^step 20 loss ")
        process.terminate()
        try:
            said = process.communicate(timeout=100)[1]  # until nobody is left who could write
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail("processes outlive the program that has started them")
        self.assertEqual((process.returncode, said), (7, "stopped by a signal\n"))
        self.assertEqual(list(self.folder.glob("embps-*")), [])

    def test_processes_learn_what_one_does(self):
        losses = []
        for n in (1, 2):
            arguments = [sys.executable, EXAMPLES / "distributed.py", "--connect", self.serve(data=f"served {n}"),
                         "--processes", n, "--steps", "40", "--batch", "16"]
            process = self.start(arguments, env=self.environment(), text=True, stdout=subprocess.PIPE)
            self.addCleanup(process.stdout.close)
            said = process.communicate()[0]
            self.assertEqual(process.returncode, 0)
            losses.append([float(loss) for loss in re.findall(r"^step (?:20|40) loss ([0-9.]+)$", said, re.MULTILINE)])
        one, two = losses
        self.assertEqual(len(one), 2)
        for ours, theirs in zip(one, two):
            self.assertAlmostEqual(ours, theirs, delta=0.002)


if __name__ == "__main__":
    unittest.main()
