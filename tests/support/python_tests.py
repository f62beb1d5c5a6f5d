"""What tests of the Python package share. Import it before embps: it says where the package and the
library are, EMBPS_BUILD being the build folder, and ends with 77 (skipped) where something is not
there."""

import contextlib
import importlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("EMBPS_BUILD", ROOT / "build"))
SKIPPED = 77

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "worker" / "python"))


def skip(why):
    """Ends this program as a test that was skipped."""
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def need(*modules):
    """Skips all tests of this program where one of the modules cannot be imported. With a library that
    has gcc's address sanitizer the program starts again with that loaded first, as it must be."""
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    sanitizers = re.search(r"^EMBPS_SANITIZE:STRING=(.+)", cache, re.MULTILINE)
    if sanitizers and ("torch" in modules or "address" not in sanitizers[1]):
        skip(f"not run with {', '.join(modules)} and sanitizers: {sanitizers[1]}")
    if sanitizers and "LD_PRELOAD" not in os.environ:
        preload_sanitizer(re.search(r"^CMAKE_C_COMPILER:\w+=(.+)", cache, re.MULTILINE)[1])
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as missing:
            skip(missing)
    os.environ["EMBPS_LIBRARY"] = str(BUILD / "libembps.so")


def preload_sanitizer(compiler):
    """This program again, with the compiler's sanitizers in it. Python itself leaks at its end."""
    found = [subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
             for name in ("libasan.so", "libubsan.so")]
    if not all(os.path.isabs(path) for path in found):
        skip(f"{compiler} has no sanitizers that can be loaded into a plain python")
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    environment = {**os.environ, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": options}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def seed():
    """The seed of a random test, printed."""
    value = int(os.environ.get("EMBPS_TEST_SEED", random.SystemRandom().randrange(2**31)))
    print(f"EMBPS_TEST_SEED={value}", file=sys.stderr)
    return value


@contextlib.contextmanager
def held(client):
    """Another thread has the client for the time of the block, as one that waits in a call of it."""
    taken, end = threading.Event(), threading.Event()

    def wait():
        taken.set()
        end.wait()
    thread = threading.Thread(target=client._session.run, args=(wait,))
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


class Case(unittest.TestCase):
    """A test with a temporary folder and clients that are closed behind it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embps-test."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.processes = []

    def connect(self):
        embps = importlib.import_module("embps")
        client = embps.connect(f"local:{self.folder / 'data'}", memory="16M")
        self.addCleanup(client.close)
        return client

    def start(self, command, **options):
        """A process that ends with the test at the latest."""
        process = subprocess.Popen([str(word) for word in command], **options)
        self.processes.append(process)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def serve(self, *more, data="served"):
        """The address of a server of its own process, with workers from outside alone."""
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        process = self.start([BUILD / "embps-server", "--data", self.folder / data, "--memory", "32M",
                              "--listen", "127.0.0.1:0", "--port-file", port_file, *more])
        while not port_file.exists() or not port_file.read_text(encoding="ascii").endswith("\n"):
            self.assertIsNone(process.poll(), "the server ended")
            time.sleep(0.01)
        return port_file.read_text(encoding="ascii").split()[-1]
