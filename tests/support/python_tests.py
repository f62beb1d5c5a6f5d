"""What tests of the Python package share. Import it before embps: it says where the package and the
library are, EMBPS_BUILD being the build folder, and ends with 77 (skipped) where something is not
there."""

import importlib
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
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
    """Skips all tests of this program where one of the modules cannot be imported."""
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    if re.search(r"^EMBPS_SANITIZE:STRING=.+", cache, re.MULTILINE):
        skip("a library with sanitizers does not load into a plain python")
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as missing:
            skip(missing)
    os.environ["EMBPS_LIBRARY"] = str(BUILD / "libembps.so")


def seed():
    """The seed of a random test, printed."""
    value = int(os.environ.get("EMBPS_TEST_SEED", random.SystemRandom().randrange(2**31)))
    print(f"EMBPS_TEST_SEED={value}", file=sys.stderr)
    return value


class Case(unittest.TestCase):
    """A test with a temporary folder and clients that are closed behind it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embps-test."))
        self.addCleanup(shutil.rmtree, self.folder)

    def connect(self):
        embps = importlib.import_module("embps")
        client = embps.connect(f"local:{self.folder / 'data'}", memory="16M")
        self.addCleanup(client.close)
        return client
