"""libembps by ctypes: where it is found, what its calls and structs look like.

The declarations follow worker/include/embps.h line by line; tests/unit/worker/python compares the
structs with what the C compiler makes of that header. ctypes releases the interpreter's lock for
the time of each call. Nothing here checks arguments: arguments.py and arrays.py do.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import operator
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float,
                    c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)
from typing import Any

from . import errors

VERSION = (0, 1)  # of the library's interface that this package speaks
SONAME = "libembps.so.0"
MAX_PARAMS = 16
ASYNC = 2**32 - 1
FLUSH_MAX = 1000
LOCAL_WORKERS_MAX = 4096

GRADIENT, DELTA, ASSIGN = 0, 1, 2
PULL_SCAN, PULL_EXACT = 1, 2
EXPORT_STATE = 1
CHECKPOINT_NAME_BYTES = 128
WATCH_ROWS = 1


class ErrorStruct(Structure):
    _fields_ = [("code", c_int), ("rank", c_int32), ("id", c_uint64), ("message", c_char * 488)]


class LocalOptions(Structure):
    _fields_ = [("data", c_char_p), ("memory_bytes", c_uint64), ("n_workers", c_uint32)]


WaitingFn = CFUNCTYPE(None, c_void_p, c_char_p)


class ConnectOptions(Structure):
    _fields_ = [("size", c_size_t), ("wait_ms", c_uint32), ("cluster", c_uint64), ("waiting", WaitingFn),
                ("waiting_context", c_void_p), ("tls_ca", c_char_p), ("tls_cert", c_char_p),
                ("tls_key", c_char_p), ("token_file", c_char_p), ("plain_text", c_bool)]


class TableOptions(Structure):
    _fields_ = [
        ("size", c_size_t), ("dim", c_uint32),
        ("init", c_char_p), ("n_init_params", c_uint32), ("init_params", c_double * MAX_PARAMS),
        ("optimizer", c_char_p), ("n_optimizer_params", c_uint32),
        ("optimizer_params", c_double * MAX_PARAMS),
        ("seed", c_uint64),
        ("precision", c_char_p), ("state_precision", c_char_p), ("per_row_steps", c_bool),
        ("l2", c_double), ("clip_value", c_double), ("clip_norm", c_double),
        ("has_bounds", c_bool), ("weight_min", c_double), ("weight_max", c_double),
        ("has_pad", c_bool), ("pad_id", c_uint64),
        ("admit_after", c_uint32), ("admit_shared", c_bool), ("admit_counters", c_uint32),
        ("expire_after", c_uint64), ("expire_rare_after", c_uint64),
        ("expire_rare_below", c_uint32), ("expire_floor", c_uint32), ("expire_dry_run", c_bool),
        ("pull_format", c_char_p), ("push_format", c_char_p),
    ]


class BlockStruct(Structure):
    _fields_ = [("size", c_size_t), ("n", c_size_t), ("dim", c_uint32), ("state_floats", c_uint32),
                ("ids", POINTER(c_uint64)), ("rows", POINTER(c_float)), ("state", POINTER(c_float)),
                ("counts", POINTER(c_uint32))]


CounterFn = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64)
TableFn = CFUNCTYPE(None, c_void_p, c_char_p, POINTER(TableOptions), c_uint64)

_ERROR = POINTER(ErrorStruct)
_IDS = POINTER(c_uint64)
_ROWS = POINTER(c_float)
_HANDLE_OUT = POINTER(c_void_p)
# Name -> (result, arguments). Those that return c_int return a code and fill an error.
_CALLS = {
    "embps_version": (c_char_p, []),
    "embps_connect_local_many": (c_int, [POINTER(LocalOptions), _HANDLE_OUT, _ERROR]),
    "embps_connect": (c_int, [c_char_p, POINTER(ConnectOptions), _HANDLE_OUT, _ERROR]),
    "embps_cluster": (c_uint64, [c_void_p]),
    "embps_close": (c_int, [c_void_p, _ERROR]),
    "embps_worker_rank": (c_uint32, [c_void_p]),
    "embps_worker_count": (c_uint32, [c_void_p]),
    "embps_server_count": (c_uint32, [c_void_p]),
    "embps_table_open": (c_int, [c_void_p, c_char_p, POINTER(TableOptions), _HANDLE_OUT, _ERROR]),
    "embps_tables": (c_int, [c_void_p, TableFn, c_void_p, _ERROR]),
    "embps_table_set_step": (None, [c_void_p, c_uint64]),
    "embps_pull_states": (c_int, [c_void_p, _IDS, c_size_t, _ROWS, POINTER(c_uint8), c_uint32, _ERROR]),
    "embps_push": (c_int, [c_void_p, c_int, _IDS, c_size_t, _ROWS, c_float, _ERROR]),
    "embps_pull_states_start": (c_int, [c_void_p, _IDS, c_size_t, _ROWS, POINTER(c_uint8), c_uint32,
                                        _HANDLE_OUT, _ERROR]),
    "embps_push_start": (c_int, [c_void_p, c_int, _IDS, c_size_t, _ROWS, c_float, _HANDLE_OUT, _ERROR]),
    "embps_pull_within": (c_int, [c_void_p, _IDS, c_size_t, _ROWS, POINTER(c_uint8), c_uint32, c_uint32,
                                  _ERROR]),
    "embps_prefetch": (c_int, [c_void_p, _IDS, c_size_t, c_uint64, _ERROR]),
    "embps_set_timeout": (None, [c_void_p, c_uint32]),
    "embps_wait": (c_int, [c_void_p, _ERROR]),
    "embps_test": (c_int, [c_void_p, POINTER(c_bool), _ERROR]),
    "embps_set_staleness": (None, [c_void_p, c_uint32]),
    "embps_set_cache": (c_int, [c_void_p, c_size_t, _ERROR]),
    "embps_set_flush": (None, [c_void_p, c_uint32]),
    "embps_clock": (c_int, [c_void_p, c_uint64, POINTER(c_uint64), _ERROR]),
    "embps_last_clock": (c_int, [c_void_p, c_uint64, POINTER(c_uint64), _ERROR]),
    "embps_barrier": (c_int, [c_void_p, _ERROR]),
    "embps_export_start": (c_int, [c_void_p, c_uint32, _HANDLE_OUT, _ERROR]),
    "embps_export_next": (c_int, [c_void_p, POINTER(BlockStruct), _ERROR]),
    "embps_export_end": (None, [c_void_p]),
    "embps_watch_start": (c_int, [c_void_p, c_uint32, _HANDLE_OUT, _ERROR]),
    "embps_watch_next": (c_int, [c_void_p, c_uint32, POINTER(BlockStruct), POINTER(c_bool), _ERROR]),
    "embps_watch_end": (None, [c_void_p]),
    "embps_import": (c_int, [c_void_p, POINTER(BlockStruct), POINTER(c_uint64), _ERROR]),
    "embps_checkpoint": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, _ERROR]),
    "embps_checkpoint_state": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t), c_char_p,
                                       _ERROR]),
    "embps_stats": (c_int, [c_void_p, CounterFn, c_void_p, _ERROR]),
    "embps_traffic": (None, [c_void_p, POINTER(c_uint64), POINTER(c_uint64)]),
}


def _candidates() -> Iterator[str]:
    """Paths and names to try, best first. A path that EMBPS_LIBRARY names is the only one."""
    named = os.environ.get("EMBPS_LIBRARY")
    if named:
        yield named
        return
    beside = pathlib.Path(__file__).with_name("libembps.so")
    if beside.is_file():
        yield str(beside)
    try:
        said = subprocess.run(["pkg-config", "--variable=libdir", "embps"], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if said.returncode == 0 and said.stdout.strip():
            yield str(pathlib.Path(said.stdout.strip()) / SONAME)
    except OSError:
        pass  # no pkg-config
    yield SONAME  # the loader's own places: LD_LIBRARY_PATH, ldconfig


def _open() -> ctypes.CDLL:
    failures = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(f"  {path}: {error}")
    raise ImportError(
        "embps: libembps.so cannot be loaded:\n" + "\n".join(failures) +
        "\nBuild it (cmake -G Ninja -S . -B build && ninja -C build) and install this package again "
        "from the checkout, or install it (cmake --install build), or name the file in EMBPS_LIBRARY.")


def _load() -> ctypes.CDLL:
    library = _open()
    for name, (result, arguments) in _CALLS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"embps: this libembps.so has no {name}; it is another version") from None
        function.restype, function.argtypes = result, arguments
    version = library.embps_version().decode()
    if tuple(int(part) for part in version.split(".")[:2]) != VERSION:
        raise ImportError(f"embps: libembps.so is version {version}, and this package needs "
                          f"{VERSION[0]}.{VERSION[1]}: install both from the same tree")
    return library


lib = _load()


def error(told: ErrorStruct) -> errors.Error:
    """The exception for what a call said."""
    return errors.make(told.code, told.message.decode(errors="replace"), told.rank, told.id)


def bind(told: ErrorStruct, name: str, *arguments: object) -> functools.partial[Any]:
    """A call with all its arguments, told being its error where it has one."""
    function = getattr(lib, name)
    return functools.partial(function, *arguments, *([byref(told)] if function.argtypes[-1] is _ERROR else []))


def at_once(*steps: Callable[[], Any]) -> None:
    """Calls one after another what is no code of Python. To the interpreter that is one instruction, so
    that no exception of a signal handler (KeyboardInterrupt) comes in between."""
    collections.deque(map(operator.call, steps), maxlen=0)


def note(into: object, attribute: str, name: str, *arguments: object) -> None:
    """Makes a call and sets the attribute to what it said, at once: it is set if and only if the call
    was made. Its code is 0 where all was well."""
    told = ErrorStruct()
    at_once(bind(told, name, *arguments), functools.partial(setattr, into, attribute, told))


def call(name: str, *arguments: object) -> None:
    """Calls a function that returns a code, with an error behind its arguments; raises what it says."""
    told = ErrorStruct()
    code = bind(told, name, *arguments)()
    if code:
        raise error(told)
