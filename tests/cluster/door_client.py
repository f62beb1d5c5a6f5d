"""A client made only from proto/embps.proto by protoc and grpc_python_plugin, with nothing of ours.

door_client.py STUBS ADDRESS CHECK [N]: STUBS is the folder with the generated modules. CHECK:
  rows       pulls what it pushed, on as many servers as there are; every way to write ids; once each
  malformed  N malformed, truncated or foreign messages, after which the tables are as before
  hold       says hello, prints "held", and waits for a line; then its call must be UNAVAILABLE
"""

import random
import struct
import sys

sys.path.insert(0, sys.argv[1])
import google.protobuf.message  # noqa: E402
import grpc  # noqa: E402
from proto import embps_pb2 as pb  # noqa: E402
from proto import embps_pb2_grpc as stubs  # noqa: E402

MASK = 2**64 - 1
C = 0x9E3779B97F4A7C15
D = 3
LIMIT = 1 << 20
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


def mix(x):
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def slot(table, row):
    return mix(mix((row + C) & MASK) ^ ((table + 1) * C & MASK)) % 16384


class Server:
    """One server's session."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.stub = stubs.EmbpsStub(self.channel)
        self.hello = self.stub.Hello(pb.HelloRequest(header=pb.RequestHeader(protocol=1)), timeout=120)
        assert self.hello.header.status == 0, self.hello.header.message
        assert self.hello.lease_ms > 0
        self.sequence = 0

    def header(self, ordered=False, sequence=None):
        if sequence is None:
            self.sequence += ordered
            sequence = self.sequence if ordered else 0
        return pb.RequestHeader(protocol=1, cluster=self.hello.cluster, session=self.hello.session,
                                map_epoch=self.hello.map_epoch, sequence=sequence, request=7)

    def raw(self, method, message):
        call = self.channel.unary_unary(f"/embps.v1.Embps/{method}")
        return call(message, timeout=120)

    def goodbye(self):
        reply = self.stub.Goodbye(pb.GoodbyeRequest(header=self.header(ordered=True)), timeout=120)
        assert reply.header.status == 0
        self.channel.close()


class Cluster:
    """All servers, from the address of one."""

    def __init__(self, address):
        first = Server(address)
        assert len(first.hello.addresses) == first.hello.n_servers
        assert first.hello.addresses[first.hello.server] == address
        self.servers = [first if k == first.hello.server else Server(a)
                        for k, a in enumerate(first.hello.addresses)]
        self.owners = struct.unpack("<16384H", first.hello.slot_owners)
        options = dict(name="t", dim=D, init="zeros", optimizer="sgd", seed=1)
        self.table = 0
        for server in self.servers:
            reply = server.stub.OpenTable(
                pb.OpenTableRequest(header=server.header(ordered=True), table=self.table, **options), timeout=120)
            assert reply.header.status == 0, reply.header.message
            self.table, self.epoch = reply.table, reply.table_epoch

    def split(self, rows):
        parts = [[] for _ in self.servers]
        for row in rows:
            parts[self.owners[slot(self.table, row)]].append(row)
        return [(s, part) for s, part in zip(self.servers, parts) if part]

    def pull_request(self, server, rows):
        return pb.PullRequest(header=server.header(), table=self.table, table_epoch=self.epoch,
                              staleness=2**32 - 1, ids=rows)

    @staticmethod
    def values(reply, rows):
        assert reply.header.status == 0, reply.header.message
        numbers = struct.unpack(f"<{D * len(rows)}f", reply.rows)
        return {row: numbers[D * i:D * i + D] for i, row in enumerate(rows)}

    def pull(self, rows):
        got = {}
        for server, part in self.split(rows):
            got.update(self.values(server.stub.Pull(self.pull_request(server, part), timeout=120), part))
        return got

    def push_request(self, server, rows, kind, values, **header):
        flat = [x for row in rows for x in values[row]]
        return pb.PushRequest(header=server.header(ordered=not header, **header), table=self.table,
                              table_epoch=self.epoch, kind=kind, dim=D, ids=rows,
                              rows=struct.pack(f"<{len(flat)}f", *flat))

    def push(self, kind, values):
        for server, part in self.split(values):
            reply = server.stub.Push(self.push_request(server, part, kind, values), timeout=120)
            assert reply.header.status == 0, reply.header.message

    def goodbye(self):
        for server in self.servers:
            server.goodbye()


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def packed(field, rows):
    data = struct.pack(f"<{len(rows)}Q", *rows)
    return varint(field << 3 | 2) + varint(len(data)) + data


def single(field, rows):
    return b"".join(varint(field << 3 | 1) + struct.pack("<Q", row) for row in rows)


# Fields that nobody knows, one of each wire type.
UNKNOWN = (varint(1000 << 3) + varint(2**64 - 1) + varint(999 << 3 | 2) + varint(4) + b"what" +
           varint(998 << 3 | 1) + bytes(8) + varint(997 << 3 | 5) + bytes(4) + varint(996 << 3 | 2) + varint(0))


def ways_to_write(field, rows):
    """Ids packed, one by one, in several pieces, some of them empty, and mixed."""
    half = len(rows) // 2
    return [packed(field, rows), single(field, rows), packed(field, rows[:half]) + packed(field, rows[half:]),
            single(field, rows[:half]) + packed(field, rows[half:]),
            packed(field, rows[:half]) + single(field, rows[half:]),
            packed(field, rows[:half]) + UNKNOWN + single(field, rows[half:]),
            packed(field, []) + packed(field, rows) + packed(field, []),
            b"".join(packed(field, [row]) for row in rows)]


def all_messages(make_header, head, field, rows):
    """Every way to write the ids, before and after the other fields, with unknown ones all over."""
    def header(more):
        known = make_header().SerializeToString() + more
        return varint(1 << 3 | 2) + varint(len(known)) + known
    for ids in ways_to_write(field, rows):
        yield header(b"") + head + ids
        yield ids + head + header(b"")
        yield UNKNOWN + header(UNKNOWN) + UNKNOWN + head + ids + UNKNOWN


def rows_check(address):
    cluster = Cluster(address)
    rows = [0, 1, 2**64 - 1] + [mix(n) for n in range(1, 301)]
    values = {row: (float(n), n / 2, -float(n)) for n, row in enumerate(rows)}
    assert all(v == (0, 0, 0) for v in cluster.pull(rows).values())
    cluster.push(pb.PUSH_ASSIGN, values)
    assert cluster.pull(rows) == values

    # However ids are written, and whatever stands between the fields that are known.
    for server, part in cluster.split(rows):
        head = cluster.pull_request(server, [])
        head.ClearField("header")
        for message in all_messages(server.header, head.SerializeToString(), 15, part):
            reply = pb.PullReply.FromString(server.raw("Pull", message))
            assert cluster.values(reply, part) == {row: values[row] for row in part}
        head = cluster.push_request(server, part, pb.PUSH_DELTA, {row: (1.0, 2.0, 3.0) for row in part}, sequence=0)
        head.ClearField("header")
        head.ClearField("ids")
        pushed = 0
        for message in all_messages(lambda: server.header(ordered=True), head.SerializeToString(), 14, part):
            reply = pb.PushReply.FromString(server.raw("Push", message))
            assert reply.header.status == 0, reply.header.message
            pushed += 1
    values = {row: (a + pushed, b + 2 * pushed, c + 3 * pushed) for row, (a, b, c) in values.items()}
    assert cluster.pull(rows) == values

    # Once each, however often it is sent; in the order of sequences, whichever comes first.
    server, part = cluster.split(rows)[0]
    one = {row: (1.0, 1.0, 1.0) for row in part}
    two = {row: (2.0, 2.0, 2.0) for row in part}
    first, second = server.sequence + 1, server.sequence + 2
    late = server.stub.Push.future(
        cluster.push_request(server, part, pb.PUSH_ASSIGN, two, sequence=second), timeout=120)
    for _ in range(3):
        reply = server.stub.Push(cluster.push_request(server, part, pb.PUSH_ASSIGN, one, sequence=first), timeout=120)
        assert reply.header.status == 0, reply.header.message
    assert late.result().header.status == 0
    server.sequence = second
    assert all(v == (2, 2, 2) for v in cluster.pull(part).values())
    for _ in range(3):
        reply = server.stub.Push(cluster.push_request(server, part, pb.PUSH_DELTA, one, sequence=second + 1),
                                 timeout=120)
        assert reply.header.status == 0, reply.header.message
    server.sequence += 1
    assert all(v == (3, 3, 3) for v in cluster.pull(part).values())

    # What embps refuses is in the header of a call that is OK; what the door refuses is a status.
    wrong = cluster.pull_request(server, part)
    wrong.header.cluster ^= 1
    assert server.stub.Pull(wrong, timeout=120).header.status == 20
    wrong = cluster.pull_request(server, part)
    wrong.header.session ^= 1
    assert server.stub.Pull(wrong, timeout=120).header.status == 21
    try:
        server.raw("Pull", bytes(LIMIT + 1))
        raise AssertionError("a message over the limit was taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and str(LIMIT) in error.details(), error
    try:
        server.raw("Pull2", b"")
        raise AssertionError("a method that does not exist was called")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
    cluster.goodbye()
    print(f"rows on {len(cluster.servers)} servers are right")


def malformed_check(address, count):
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}", file=sys.stderr)
    rng = random.Random(seed)
    cluster = Cluster(address)
    rows = [mix(n) for n in range(100)]
    values = {row: (float(n), 1.0, 2.0) for n, row in enumerate(rows)}
    cluster.push(pb.PUSH_ASSIGN, values)
    server, part = cluster.split(rows)[0]
    pull = cluster.pull_request(server, part)
    session = pull.header.session
    pull = pull.SerializeToString()
    push = cluster.push_request(server, part, pb.PUSH_DELTA, values, sequence=10**9)
    push.header.session ^= 1  # whatever is left of it must not count
    push = push.SerializeToString()
    methods = [method.name for method in pb.DESCRIPTOR.services_by_name["Embps"].methods]

    def waits(method, message):
        """By chance of this session, with a sequence: it rightly waits for those that go first."""
        try:
            header = getattr(pb, f"{method}Request").FromString(message).header
        except google.protobuf.message.DecodeError:
            return False
        return header.session == session and header.sequence != 0

    def bad():
        kind = rng.randrange(4)
        if kind == 0:
            return rng.choice(methods), rng.randbytes(rng.randrange(200))
        method, whole = rng.choice((("Pull", pull), ("Push", push)))
        if kind == 1:
            return method, whole[:rng.randrange(len(whole))]
        if kind == 2:
            return rng.choice([m for m in methods if m != "Hello"]), push
        message = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            message[rng.randrange(20 if method == "Push" else len(message))] = rng.randrange(256)
        return bad() if waits(method, bytes(message)) else (method, bytes(message))

    outcomes = {}
    waiting = []
    for n in range(count):
        method, message = bad()
        waiting.append(server.channel.unary_unary(f"/embps.v1.Embps/{method}").future(message, timeout=120))
        if len(waiting) < 100 and n + 1 < count:
            continue
        for call in waiting:
            code = call.code().name
            if code == "OK":
                reply = call.result()
                code = "reply" if len(reply) > 0 else "empty"
            outcomes[code] = outcomes.get(code, 0) + 1
        waiting = []
    print(outcomes, file=sys.stderr)
    # A mutated pull may be right by chance; all else was refused in words. Nobody was left without an answer.
    assert set(outcomes) <= {"reply", "INVALID_ARGUMENT"}, outcomes
    other = Cluster(address)
    assert other.pull(rows) == values
    other.goodbye()
    print(f"{count} malformed messages later the rows are as before")


def hold(address):
    server = Server(address)
    print("held", flush=True)
    sys.stdin.readline()
    try:
        server.stub.Stats(pb.StatsRequest(header=server.header()), timeout=120)
        raise AssertionError("the server still answers")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    print("gone")


if __name__ == "__main__":
    if sys.argv[3] == "rows":
        rows_check(sys.argv[2])
    elif sys.argv[3] == "malformed":
        malformed_check(sys.argv[2], int(sys.argv[4]))
    else:
        hold(sys.argv[2])
