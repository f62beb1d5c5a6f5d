"""The streams of proto/embps.proto, by a client made from it alone (door_client.py has what it is made of).

door_frames_client.py STUBS ADDRESS CHECK: CHECK:
  streams    imports rows by a stream, exports them by a stream, and finds the same, on all servers
  watched    what is pushed comes to who watches by a stream, with values, from every server
  cancelled  exports that end at any block, and one that is not read, leave nothing behind
  cut        begins to export, prints "reading", and waits for a line; then the stream must end UNAVAILABLE
"""

import struct
import sys

import door_client as door
import grpc
from proto import embps_pb2 as pb

N = 3000


def check(reply):
    assert reply.header.status == 0, reply.header.message
    return reply


def blocks(cluster, server, rows, dim, per_block=500):
    """Requests of an import stream."""
    ids = sorted(rows)
    for at in range(0, len(ids), per_block):
        some = ids[at:at + per_block]
        flat = [x for row in some for x in rows[row]]
        yield pb.ImportRequest(header=server.header(ordered=True), table=cluster.table, table_epoch=cluster.epoch,
                               dim=dim, ids=some, rows=struct.pack(f"<{len(flat)}f", *flat))


def export_request(cluster, server, **fields):
    return pb.ExportRequest(header=server.header(), table=cluster.table, table_epoch=cluster.epoch, **fields)


def export(cluster, **fields):
    found = {}
    for server in cluster.servers:
        n_blocks = 0
        for reply in server.stub.Export(export_request(cluster, server, **fields), timeout=120):
            check(reply)
            n_blocks += 1
            values = struct.unpack(f"<{len(reply.rows) // 4}f", reply.rows)
            assert len(values) == reply.dim * len(reply.ids)
            for i, row in enumerate(reply.ids):
                assert row not in found, f"row {row} is told twice"
                found[row] = values[i * reply.dim:(i + 1) * reply.dim]
        assert not reply.next and n_blocks > 1
    return found


def streams(cluster):
    rows = {row * 0x9E3779B97F4A7C15 % 2**64: (row, -row, 0.5) for row in range(N)}
    for server, part in cluster.split(rows):
        values = {row: rows[row] for row in part}
        reply = check(server.stub.Import(blocks(cluster, server, values, door.D), timeout=120))
        assert (reply.rows, reply.created) == (len(part), len(part)), reply
    assert export(cluster, max_rows=100) == rows
    some = sorted(rows)[:50]
    assert cluster.pull(some) == {row: rows[row] for row in some}
    # What is refused ends the stream, with the sums of what was applied before.
    for server, part in cluster.split(rows):
        good = list(blocks(cluster, server, {row: (1.0, 1.0, 1.0) for row in part[:20]}, door.D, 10))
        bad = pb.ImportRequest(header=server.header(ordered=True), table=cluster.table, table_epoch=cluster.epoch,
                               dim=door.D, ids=part[:1], rows=struct.pack("<3f", 1, float("nan"), 1))
        late = pb.ImportRequest(header=server.header(ordered=True), table=cluster.table, table_epoch=cluster.epoch,
                                dim=door.D, ids=part[:1], rows=struct.pack("<3f", 9, 9, 9))
        reply = server.stub.Import(iter([*good, bad, late]), timeout=120)
        assert reply.header.status == 2 and "not finite" in reply.header.message, reply
        assert (reply.rows, reply.created) == (20, 0), reply
        server.sequence -= 1  # the last one was never read
    # Streams without a message, of an unknown table, of a request with a sequence, malformed.
    server = cluster.servers[0]
    try:
        server.stub.Import(iter([]), timeout=120)
        raise AssertionError("an empty stream")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    replies = list(server.stub.Export(pb.ExportRequest(header=server.header(), table=99), timeout=120))
    assert len(replies) == 1 and replies[0].header.status == 3, replies
    try:
        request = pb.ExportRequest(header=server.header(ordered=True), table=cluster.table,
                                   table_epoch=cluster.epoch, max_rows=10)
        list(server.stub.Export(request, timeout=120))
        raise AssertionError("a stream whose request has a sequence")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "sequence" in error.details(), error
    call = server.channel.unary_stream("/embps.v1.Embps/Export")
    try:
        reply = pb.ExportReply.FromString(b"".join(call(b"\xff\xff", timeout=120)))
        assert reply.header.status == 20, reply
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    print("streams are right")


def many(cluster):
    dim = 64
    for server in cluster.servers:
        reply = check(server.stub.OpenTable(
            pb.OpenTableRequest(header=server.header(ordered=True), name="many", dim=dim, init="zeros", seed=1,
                                optimizer="sgd", table=0 if server is cluster.servers[0] else cluster.table),
            timeout=120))
        cluster.table, cluster.epoch = reply.table, reply.table_epoch
    rows = {row: (float(row),) * dim for row in range(20000)}
    for server, part in cluster.split(rows):
        check(server.stub.Import(blocks(cluster, server, {row: rows[row] for row in part}, dim, 1000), timeout=120))


def cancelled(cluster):
    many(cluster)
    server = cluster.servers[0]
    for n_blocks in range(8):
        stream = server.stub.Export(export_request(cluster, server, max_rows=50), timeout=120)
        for _, reply in zip(range(n_blocks), stream):
            check(reply)
        stream.cancel()
    unread = server.stub.Export(export_request(cluster, server), timeout=120)
    # The owner serves others meanwhile, and another export.
    assert len(export(cluster, max_rows=1000)) == 20000
    unread.cancel()
    print("cancelled")


def watched(cluster):
    rows = {row * 0x9E3779B97F4A7C15 % 2**64: (row, 2 * row, 3 * row) for row in range(200)}
    streams_of = []
    for server, part in cluster.split(rows):
        request = pb.WatchRequest(header=server.header(), table=cluster.table, table_epoch=cluster.epoch,
                                  want_rows=True, wait_ms=50)
        stream = server.stub.Watch(request, timeout=250)
        first = check(next(stream))
        assert not first.ids and not first.lost, first
        streams_of.append((part, stream))
    cluster.push(2, rows)
    for part, stream in streams_of:
        left = set(part)
        while left:  # with empty messages between
            reply = check(next(stream))
            assert not reply.lost
            values = struct.unpack(f"<{len(reply.rows) // 4}f", reply.rows)
            for i, row in enumerate(reply.ids):
                assert values[3 * i:3 * i + 3] == rows[row]
                left.remove(row)
        assert not check(next(stream)).ids  # a sign of life
        stream.cancel()
    # One message alone, with and without the end of its wait.
    server = cluster.servers[0]
    request = pb.WatchRequest(header=server.header(), table=cluster.table, table_epoch=cluster.epoch)
    first = check(server.stub.WatchBlock(request, timeout=120))
    request.cursor, request.wait_ms = first.next, 20
    assert not check(server.stub.WatchBlock(request, timeout=120)).ids
    request.cursor = b"nowhere"
    assert server.stub.WatchBlock(request, timeout=120).header.status == 2
    print("watched")


def cut(cluster):
    many(cluster)
    server = cluster.servers[0]
    stream = server.stub.Export(export_request(cluster, server, max_rows=1), timeout=250)
    check(next(stream))
    print("reading", flush=True)
    sys.stdin.readline()
    try:
        for reply in stream:
            check(reply)
        raise AssertionError("the stream came to its end")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error


def main():
    cluster = door.Cluster(sys.argv[2])
    {"streams": streams, "watched": watched, "cancelled": cancelled, "cut": cut}[sys.argv[3]](cluster)
    if sys.argv[3] != "cut":
        cluster.goodbye()


main()
