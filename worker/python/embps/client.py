"""Clients and tables: the calls of embps.h with arrays, exceptions and context managers.

N: ids in a call, of any shape; D: the table's dim. Ids are integers of any type, 0 to 2**64 - 1;
rows are float32, and come in the shape of the ids with one more dimension, D. Duplicate ids are
allowed everywhere: their gradients and deltas are summed, of assigned rows the last one counts.

Threads: any thread may call; calls of one client go one after another, so a thread that waits (a
barrier, a pull with a staleness) keeps others waiting, but for calls that end in _async, prefetch and
set_step: those never wait, and are made when that thread's call has ended. Threads that must not wait
for each other each take a client of their own (connect_many).

Ctrl-C is seen when the call of the library that is under way returns; connect, tables and stats are
left at once, and end on their own. The client is as good as before, futures and iterators go on, and
memory lives as long as the library writes to it. A signal handler that calls the client in the middle
of another call of it gets Busy.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import weakref
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from . import arguments, arrays, errors, library
from .arguments import U32_MAX, U64_MAX, Path, Spec, TableInfo
from .errors import InvalidArgument
from .requests import Future, Session, apart
from .walks import Pairs, Walk, Watch

T = TypeVar("T")


class RowState(enum.IntEnum):
    """What a pulled row is."""

    PRESENT = 0
    INITIAL = 1  # never pushed: its initial value
    NOT_ADMITTED = 2  # pushed, but not often enough to be kept (admit_after)
    EXPIRED = 3  # not pushed for too long (expire_after): its initial value
    LATE = 5  # pull_within alone: not there in time, no value


_FILE_VARIABLES = {"tls_ca": "EMBPS_TLS_CA", "tls_cert": "EMBPS_CLIENT_TLS_CERT",
                   "tls_key": "EMBPS_CLIENT_TLS_KEY", "token_file": "EMBPS_TOKEN_FILE"}


def _file(name: str, given: Path | None) -> bytes | None:
    """The name of a file, if need be from the environment; None: none, also where it is ""."""
    return arguments.path(name, os.environ.get(_FILE_VARIABLES[name], "") if given is None else given) or None


class Table:
    """A table of a client; client.table() makes it. Lives as long as its client.

    client, name, dim: whose it is, what it is called, D. What its calls raise: see Client.
    """

    def __init__(self, client: Client, handle: c_void_p, name: str, dim: int) -> None:
        self.client = client
        self.name = name
        self.dim = dim
        self._session = client._session
        self._handle = handle

    def __repr__(self) -> str:
        return f"<embps.Table {self.name!r}, dim {self.dim}>"

    def __reduce__(self) -> Any:
        raise TypeError("a table of embps cannot be copied or pickled; open it where it is needed")

    # Rows

    def pull(self, ids: Any, *, out: np.ndarray | None = None, scan: bool = False,
             exact: bool = False) -> np.ndarray:
        """Reads rows: [*ids.shape, D] float32. A row that was never pushed has its initial value.

        out: memory to read into, of that shape and dtype. scan: the pull is part of a pass over many
        rows, which do not take the memory of those that are in use. exact: float32 on the wire,
        whatever pull_format is.
        """
        return self._pull(ids, out, scan, exact, None)

    def pull_states(self, ids: Any, *, out: np.ndarray | None = None, scan: bool = False,
                    exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """pull, and what each row is: uint8 of the shape of the ids, values of RowState."""
        array = arrays.as_ids(ids)
        states = np.empty(array.shape, dtype=np.uint8)
        return self._pull(array, out, scan, exact, states), states

    def _pull(self, ids: Any, out: np.ndarray | None, scan: bool, exact: bool,
              states: np.ndarray | None) -> np.ndarray:
        array, flags = arrays.as_ids(ids), _flags(scan, exact)
        rows = arrays.as_out(out, (*array.shape, self.dim))
        self._session.call("embps_pull_states", self._handle, arrays.id_pointer(array), array.size,
                           arrays.row_pointer(rows), arrays.state_pointer(states), flags)
        return rows

    def pull_within(self, ids: Any, seconds: float, *,
                    out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """pull_states that takes so long at most: what is not there in time is RowState.LATE, and its
        row is left as it is in out (zeros without out)."""
        array, deadline = arrays.as_ids(ids), arguments.milliseconds("seconds", seconds)
        shape = (*array.shape, self.dim)
        rows = np.zeros(shape, dtype=np.float32) if out is None else arrays.as_out(out, shape)
        states = np.empty(array.shape, dtype=np.uint8)
        self._session.call("embps_pull_within", self._handle, arrays.id_pointer(array), array.size,
                           arrays.row_pointer(rows), arrays.state_pointer(states), 0, deadline)
        return rows, states

    def pull_async(self, ids: Any, *, out: np.ndarray | None = None, scan: bool = False,
                   exact: bool = False) -> Future[np.ndarray]:
        """pull without waiting, as push_async. out must be left alone until the future has its result."""
        array, flags = arrays.as_ids(ids), _flags(scan, exact)
        rows = arrays.as_out(out, (*array.shape, self.dim))

        def make(given: np.ndarray) -> tuple[Any, ...]:
            return self._handle, arrays.id_pointer(given), given.size, arrays.row_pointer(rows), None, flags
        future = Future(self.client, self._session, rows)
        self._session.start("embps_pull_states_start", make, array, record=future._record)
        return future

    def push(self, ids: Any, grads: Any, lr: float) -> None:
        """Gradients, [*ids.shape, D], that the table's optimizer applies at this rate.

        A value that is not finite is an InvalidArgument that names its id; then nothing was sent.
        Each server applies its part of a push whole or not at all. Where a push fails with Timeout or
        PeerGone, or an interrupt (Ctrl-C) ends the call, it may have been applied or be applied yet: who
        pushes once more may have moved the rows twice. So it is with push_delta and import_rows.
        """
        self._push(library.GRADIENT, ids, grads, lr)

    def push_delta(self, ids: Any, deltas: Any) -> None:
        """Adds deltas, [*ids.shape, D], to rows."""
        self._push(library.DELTA, ids, deltas, 0.0)

    def assign(self, ids: Any, rows: Any) -> None:
        """Replaces rows by [*ids.shape, D]; what an optimizer keeps beside them stays."""
        self._push(library.ASSIGN, ids, rows, 0.0)

    def push_async(self, ids: Any, grads: Any, lr: float) -> Future[None]:
        """push without waiting for its answer; arrays are copied before this returns. Waits only
        while more than 32 MiB are queued, for one server or for another thread that has the client: then
        the call is made when that thread lets go, and what it says is raised by the future alone."""
        return self._push_start(library.GRADIENT, ids, grads, lr)

    def push_delta_async(self, ids: Any, deltas: Any) -> Future[None]:
        """push_delta without waiting, as push_async."""
        return self._push_start(library.DELTA, ids, deltas, 0.0)

    def assign_async(self, ids: Any, rows: Any) -> Future[None]:
        """assign without waiting, as push_async."""
        return self._push_start(library.ASSIGN, ids, rows, 0.0)

    def _push_arguments(self, kind: int, ids: Any, rows: Any, lr: float) -> tuple[Any, ...]:
        """The ids, the rows, and what makes arguments of them."""
        array = arrays.as_ids(ids)
        what = ("grads", "deltas", "rows")[kind]
        values = arrays.as_rows(rows, (*array.shape, self.dim), what)
        rate = arguments.single("lr", lr)

        def make(ids: np.ndarray, rows: np.ndarray) -> tuple[Any, ...]:
            return self._handle, kind, arrays.id_pointer(ids), ids.size, arrays.row_pointer(rows), rate
        return array, values, make

    @contextlib.contextmanager
    def _changing(self, ids: np.ndarray) -> Iterator[None]:
        """A block that changes rows. Those who keep rows of this table are told behind it, also when it
        fails, since a call that has failed may have been applied."""
        try:
            yield
        finally:
            for told in tuple(self._session.keepers.get(self.name, ())):
                told.changed(ids)

    def _push(self, kind: int, ids: Any, rows: Any, lr: float) -> None:
        array, values, make = self._push_arguments(kind, ids, rows, lr)
        with self._changing(array):
            self._session.call("embps_push", *make(array, values))

    def _push_start(self, kind: int, ids: Any, rows: Any, lr: float) -> Future[None]:
        array, values, make = self._push_arguments(kind, ids, rows, lr)
        future: Future[None] = Future(self.client, self._session, None)
        with self._changing(array):
            self._session.start("embps_push_start", make, array, values, record=future._record)
        return future

    # The whole table

    def export(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All rows that were ever pushed, in blocks: pairs of ids, [N] uint64, and values, [N, D].

        Each row comes once, as it is when its block is made; pushes may go on meanwhile, and rows
        that come into being after the start may be there or not. Rows that expired or were not
        admitted are left out. The order is the servers' own.
        """
        return Pairs(self.client, self._session, self._handle, False)

    def export_blocks(self, *, state: bool = False) -> Walk:
        """The same as an iterator of Block. state: with what the optimizer keeps beside the rows, and
        their counts, so that import_rows(*block) sets them elsewhere to the last bit."""
        return Walk(self.client, self._session, self._handle, arguments.flag("state", state))

    def watch(self, *, values: bool = False) -> Watch:
        """Rows that anybody's pushes and imports reach from now on, as an iterator of Changes.

        values: the rows too, as they are when they are told. A server remembers the last 65,536 rows
        reached; who falls behind, or does not ask for 30 seconds, gets one with lost set. Pushes
        never wait for who watches.
        """
        return Watch(self.client, self._session, self._handle, arguments.flag("values", values))

    def import_rows(self, ids: Any, values: Any, state: Any = None, counts: Any = None) -> int:
        """Sets rows as given: values [*ids.shape, D]. Returns how many are new.

        Without state the optimizer's state of rows that exist stays, as with assign. state:
        [*ids.shape, K], counts: [*ids.shape, 2], of an export with state. With counts values come
        back as they were exported, finite or not; without them all must be finite. Applied at once,
        whatever the staleness. Rows go in messages of up to 1 MiB, each of which is applied whole or
        not at all. Raises Mismatch for the state of another optimizer.
        """
        array = arrays.as_ids(ids)
        rows = arrays.as_rows(values, (*array.shape, self.dim), "values")
        block = library.BlockStruct(size=sizeof(library.BlockStruct), n=array.size, dim=self.dim,
                                    ids=arrays.id_pointer(array), rows=arrays.row_pointer(rows))
        if state is not None:
            beside = arrays.as_rows(state, (*array.shape, None), "state")
            block.state_floats, block.state = beside.shape[-1], arrays.row_pointer(beside)
        if counts is not None:
            numbers = arrays.as_counts(counts, (*array.shape, 2))
            block.counts = numbers.ctypes.data_as(POINTER(c_uint32))
        created = c_uint64()
        with self._changing(array):
            self._session.call("embps_import", self._handle, byref(block), byref(created))
        return created.value

    def prefetch(self, ids: Any, clock: int = 0) -> None:
        """Announces rows that this client will pull when it has ended so many clocks, so that servers
        read them from disk before. Changes nothing but speed, and never waits."""
        array = arrays.as_ids(ids)
        number = arguments.number("clock", clock, U64_MAX)
        self._session.start("embps_prefetch", lambda ids: (self._handle, arrays.id_pointer(ids), ids.size, number),
                            array)

    def set_step(self, step: int) -> None:
        """The number, from 1, of the optimizer's step that later pushes belong to: adam and its kin
        correct their bias by it. 0: unknown, then each row's own updates count."""
        number = arguments.number("step", step, U64_MAX)
        self._session.start("embps_table_set_step", lambda: (self._handle, number))


def _flags(scan: bool, exact: bool) -> int:
    return ((library.PULL_SCAN if arguments.flag("scan", scan) else 0) |
            (library.PULL_EXACT if arguments.flag("exact", exact) else 0))


class Client:
    """A connection; connect() makes it. A context manager: leaving the block closes it.

    Its calls, and those of its tables, raise Closed after that, InvalidArgument for an argument of a
    wrong type or range before anything is sent, and, where servers are asked, PeerGone, Timeout,
    Denied, ProtocolError, NoMemory and StorageError; what else each of them raises it says.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last_checkpoint: str | None = None
        self._finalizer = weakref.finalize(self, _close_quietly, session)

    def __enter__(self) -> Client:
        if self._session.closed is not None:
            raise errors.Closed("the client is closed")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            _close_quietly(self._session)  # the exception that is under way is the one to be seen

    def __reduce__(self) -> Any:
        raise TypeError("a client of embps cannot be copied or pickled; connect where it is needed")

    def close(self) -> None:
        """Waits for all that is under way, says goodbye, frees the client and its tables. Raises the
        error of a push whose future was dropped. May be called again. A future that is kept, and was
        not asked for its result before, raises Closed from then on, although its push counts."""
        try:
            self._session.close()
        finally:
            if self._session.closed is not None:  # else an interrupt ended this, and the collector closes
                self._finalizer.detach()  # an interrupt that comes while a finalizer runs is lost

    def flush(self) -> None:
        """Waits for all calls whose futures were dropped; raises the first error of one of them."""
        self._session.settle()

    def table(self, name: str, dim: int, *, init: Spec = "zeros", optimizer: Spec = "sgd",
              seed: int = 1, **options: Any) -> Table:
        """Opens the table of this name, creating it where it is new.

        dim: row width, 1 to 65,536. init, optimizer: a name, or a name and its parameters in the
        order of embps.h: ("normal", 0, 0.02), ("adam", 0.9, 0.98). seed: of the initial values.
        options: precision ("f32", "bf16", "f16"), state_precision, per_row_steps, l2, clip_value,
        clip_norm, bounds (lowest and highest weight), pad_id, admit_after, admit_shared,
        admit_counters, expire_after, expire_rare_after, expire_rare_below, expire_floor,
        expire_dry_run, pull_format, push_format ("f32", "bf16", "f16", "int8"), as in embps.h.

        Raises Mismatch when it exists with other options, InvalidArgument for a bad option.
        """
        struct, encoded = arguments.table_options(dim, init, optimizer, seed, options), arguments.text("name", name)
        handle = c_void_p()
        self._session.client_call("embps_table_open", encoded, byref(struct), byref(handle))
        return Table(self, handle, name, struct.dim)

    def tables(self) -> list[TableInfo]:
        """The tables that the servers have, with their options, in the order in which they were made.
        With a token, those alone for which it has a right."""
        return self._told("embps_tables", library.TableFn, lambda name, struct, rows_created: arguments.table_info(
            name, struct.contents, rows_created))

    def _told(self, call: str, kind: Any, make: Callable[..., T]) -> list[T]:
        """make of all that a call tells its callback."""
        found: list[T] = []
        failed: list[BaseException] = []

        def add(_context: int, *told: Any) -> None:
            try:
                found.append(make(*told))
            except BaseException as error:  # which would not come through the library
                failed.append(error)
        apart(self._session.client_call, call, kind(add), None)
        if failed:
            raise failed[0]
        return found

    # Workers together

    def clock(self, progress: int = 0) -> int:
        """Ends this worker's clock. Returns the sum of progress over all workers, as far as known."""
        return self._clock("embps_clock", progress)

    def last_clock(self, progress: int = 0) -> int:
        """Ends this worker's last clock: nobody waits for it any more, and it must not push."""
        return self._clock("embps_last_clock", progress)

    def _clock(self, call: str, progress: int) -> int:
        number = arguments.number("progress", progress, U64_MAX)
        total = c_uint64()
        self._session.client_call(call, number, byref(total))
        return total.value

    def barrier(self) -> None:
        """Returns when all workers have come and their earlier pushes are applied. Raises Interrupted or
        PeerGone where another worker was stopped or is gone."""
        self._session.client_call("embps_barrier")

    def set_staleness(self, clocks: int | None) -> None:
        """How many clocks workers may be apart: None: any (asynchronous); 0: in step."""
        number = library.ASYNC if clocks is None else arguments.number("clocks", clocks, U32_MAX)
        self._session.client_value("embps_set_staleness", number)

    def set_cache(self, size: int | str, flush_clocks: int = 1) -> None:
        """Copies of the rows pulled most often, within so many bytes (or "64M"); 0: none.
        flush_clocks: for how many clocks deltas are accumulated, 1 to 1,000."""
        n_bytes = arguments.size("size", size)
        clocks = arguments.number("flush_clocks", flush_clocks, library.FLUSH_MAX, least=1)
        self._session.client_call("embps_set_cache", n_bytes)
        self._session.client_value("embps_set_flush", clocks)

    def set_timeout(self, seconds: float | None) -> None:
        """How long a server may owe an answer without a sign of life before calls raise Timeout.
        None: for ever."""
        number = 0 if seconds is None else arguments.milliseconds("seconds", seconds)
        self._session.client_value("embps_set_timeout", number)

    # Checkpoints

    @property
    def last_checkpoint(self) -> str | None:
        """The name of the last checkpoint that this client made."""
        return self._last_checkpoint

    def checkpoint(self, state: bytes = b"") -> str:
        """Makes a checkpoint of all tables, on disk when it returns, with bytes of your own: dense
        weights of the same step, say. It has all that this client pushed before. Returns its name.

        Raises Unsupported where servers were started without --checkpoints, Busy while another one is
        under way. It may take longer than the client's timeout: set_timeout.
        """
        if not isinstance(state, bytes):
            raise InvalidArgument(f"state: bytes are wanted, not {type(state).__name__}")
        name = ctypes.create_string_buffer(library.CHECKPOINT_NAME_BYTES)
        self._session.client_call("embps_checkpoint", state, len(state), name)
        self._last_checkpoint = name.value.decode()
        return self._last_checkpoint

    def checkpoint_state(self, name: str | None = None) -> bytes:
        """The bytes kept with a checkpoint. None: the newest that this run of the servers has made, by
        whomever, or else the one that it went on from (--resume), whatever others the folder has. Raises
        NotFound where there is none, Corrupt where it is damaged."""
        text = None if name is None else arguments.text("name", name)
        if text == b"":
            raise InvalidArgument("name: \"\" is no checkpoint's; None is that of the newest")
        size, found = c_size_t(), ctypes.create_string_buffer(library.CHECKPOINT_NAME_BYTES)
        self._session.client_call("embps_checkpoint_state", text, None, 0, byref(size), found)
        state = ctypes.create_string_buffer(max(size.value, 1))
        self._session.client_call("embps_checkpoint_state", found.value, state, size.value, byref(size), None)
        return state.raw[:size.value]

    # Looking

    @property
    def worker_rank(self) -> int:
        """Which worker of the job this is, from 0; by address 0."""
        return int(self._session.client_value("embps_worker_rank"))

    @property
    def worker_count(self) -> int:
        """How many workers the job has; by address 0, for who comes so is none."""
        return int(self._session.client_value("embps_worker_count"))

    @property
    def cluster(self) -> int:
        """The number of the run: the same at all its servers, and never again."""
        return int(self._session.client_value("embps_cluster"))

    @property
    def server_count(self) -> int:
        """How many servers have parts of the tables."""
        return int(self._session.client_value("embps_server_count"))

    def stats(self) -> dict[str, int]:
        """All counters, summed over the servers; those of this client begin with "client."."""
        return dict(self._told("embps_stats", library.CounterFn, lambda name, value: (name.decode(), value)))

    def traffic(self) -> tuple[int, int]:
        """Bytes of all messages that this client sent and received."""
        sent, received = c_uint64(), c_uint64()
        self._session.client_value("embps_traffic", byref(sent), byref(received))
        return sent.value, received.value


def _close_quietly(session: Session) -> None:
    try:
        session.close()
    except errors.Error:
        pass  # nobody is left to be told; close() tells


def connect(address: str, *, memory: int | str = "256M", timeout: float | None = 60.0, wait: float = 10.0,
            cluster: int = 0, waiting: Callable[[str], None] | None = None, tls_ca: Path | None = None,
            tls_cert: Path | None = None, tls_key: Path | None = None, token_file: Path | None = None,
            plain_text: bool = False) -> Client:
    """A client.

    address: that of a server that listens (embps-server --listen), "HOST:PORT", "[IPV6]:PORT" or
    "unix:PATH"; it tells where the others are. Or "local:DIR": a whole server within this process, with
    its data in DIR, which must not hold tables of another run.

    timeout: as set_timeout, in seconds. By address: wait, how long servers may take until they are
    there, in seconds; cluster, the run that it must be (Client.cluster), 0: any; waiting, called about
    once a second with a line about whom connect waits for; what it raises ends the call. Local: memory,
    what that server takes for rows, at least 8M.

    Also by address, names of files, each by default what the environment variable says; "": none.
    tls_ca (EMBPS_TLS_CA): TLS, and who must have signed the servers' certificates, which must also name
    the hosts of their addresses (PEM). tls_cert and tls_key (EMBPS_CLIENT_TLS_CERT, EMBPS_CLIENT_TLS_KEY):
    this client's own. token_file (EMBPS_TOKEN_FILE): this client's token, in a file that only its owner
    can read. Files that are replaced (by rename) while the client lives are read again when a call is not let in
    or a connection fails. plain_text: the token may go to another machine without TLS.

    Raises PeerGone (nobody answers there, or one side does not trust the other), Denied (a token that
    the servers want or do not know), Timeout, Mismatch (another run), Busy, Unsupported (also in a
    child forked from a process that had connected by address: start it by spawn); local:
    Unclean, InUse, StorageError; NoMemory, InvalidArgument.
    """
    limit = 0 if timeout is None else arguments.milliseconds("timeout", timeout)
    wanted = library.ConnectOptions(sizeof(library.ConnectOptions), _wait(wait),
                                    arguments.number("cluster", cluster, U64_MAX),
                                    plain_text=arguments.flag("plain_text", plain_text))
    for name, given in (("tls_ca", tls_ca), ("tls_cert", tls_cert), ("tls_key", tls_key),
                        ("token_file", token_file)):
        setattr(wanted, name, _file(name, given))
    if waiting is not None:
        if not callable(waiting):
            raise InvalidArgument(f"waiting: {waiting!r} cannot be called")
    if isinstance(address, str) and address.startswith("local:"):
        client, = connect_many(address, 1, memory=memory)
    else:
        arguments.size("memory", memory)
        encoded = arguments.text("address", address)
        client = (apart(_connect, encoded, wanted) if waiting is None else
                  apart(_connect_telling, encoded, wanted, told=waiting))
    client._session.client_value("embps_set_timeout", limit)
    return client


def _connect(address: bytes, wanted: library.ConnectOptions) -> Client:
    """Runs apart, as an interrupt between the library's return and the Client would leave it connected."""
    handle = c_void_p()
    library.call("embps_connect", address, byref(wanted), byref(handle))
    return Client(Session(handle))


def _connect_telling(tell: Callable[[str], None], address: bytes, wanted: library.ConnectOptions) -> Client:
    wanted.waiting = library.WaitingFn(lambda _context, line: tell(line.decode(errors="replace")))
    return _connect(address, wanted)


def _wait(seconds: Any) -> int:
    """Milliseconds; 0: servers must be there."""
    return 0 if arguments.seconds_left("wait", seconds, "") == 0 else arguments.milliseconds("wait", seconds)


def connect_many(address: str, n: int, *, memory: int | str = "256M") -> list[Client]:
    """n clients, one for each of n threads, to one server in this process ("local:DIR"): the workers 0 to
    n - 1 of a job, with clocks and barriers in common, 4,096 at most. Each must be closed; the last close
    ends the server. Raises Unclean, InUse, StorageError, NoMemory, InvalidArgument."""
    kind, _, rest = address.partition(":") if isinstance(address, str) else ("", "", "")
    if kind != "local" or not rest:
        raise InvalidArgument(f"address: {address!r} is not \"local:DIR\"")
    count = arguments.number("n", n, library.LOCAL_WORKERS_MAX, least=1)
    local = library.LocalOptions(arguments.path("address", rest), arguments.size("memory", memory), count)
    return apart(_connect_local, local)


def _connect_local(local: library.LocalOptions) -> list[Client]:
    """Runs apart, as _connect."""
    handles = (c_void_p * local.n_workers)()
    library.call("embps_connect_local_many", byref(local), handles)
    return [Client(Session(c_void_p(handle))) for handle in handles]
