"""Tokens as a client made from the schema alone meets them: gRPC's own statuses.

token_client.py STUBS ADDRESS, in the folder with the tokens of test_tokens.sh.
"""

import pathlib
import sys

sys.path.insert(0, sys.argv[1])
import grpc  # noqa: E402
from proto import embps_pb2 as pb  # noqa: E402
from proto import embps_pb2_grpc as stubs  # noqa: E402

channel = grpc.insecure_channel(sys.argv[2], options=[("grpc.enable_http_proxy", 0)])
stub = stubs.EmbpsStub(channel)


def token(name):
    return (("authorization", "Bearer " + pathlib.Path(f"{name}.token").read_text("ascii").strip()),)


def status(call, request, metadata):
    """Name of the status, and its words."""
    try:
        reply = call(request, metadata=metadata, timeout=20)
        return ("OK" if reply.header.status == 0 else reply.header.status), reply
    except grpc.RpcError as error:
        return error.code().name, error.details()


hello = pb.HelloRequest(header=pb.RequestHeader(protocol=1))
value = token("reader")[0][1]
for metadata in ((), (("authorization", ""),), (("authorization", "Bearer "),),
                 (("authorization", value[len("Bearer "):]),), (("authorization", value + "x"),),
                 (("authorization", value.replace("Bearer", "Basic")),), (("token", value),),
                 (("authorization", value), ("authorization", value)), (("authorization", "Bearer " + "x" * 4000),)):
    code, words = status(stub.Hello, hello, metadata)
    assert code == "UNAUTHENTICATED", (metadata, code, words)
    assert value[len("Bearer "):] not in words, words
code, reply = status(stub.Hello, hello, (("authorization", value.replace("Bearer", "bearer")),))
assert code == "OK", (code, reply)


def header(**fields):
    return pb.RequestHeader(protocol=1, cluster=reply.cluster, map_epoch=reply.map_epoch, session=reply.session, **fields)


found = stub.FindTable(pb.FindTableRequest(header=header(), name="pushes"), metadata=token("reader"), timeout=20)
table = {"table": found.options.table, "table_epoch": 1}
push = pb.PushRequest(header=header(sequence=1), kind=pb.PUSH_DELTA, dim=4, ids=[9], rows=b"\0" * 16, **table)
code, words = status(stub.Push, push, token("reader"))
assert (code, words) == ("PERMISSION_DENIED", "the token does not allow this: table pushes, write"), (code, words)
code, words = status(stub.Push, push, token("reader"))  # again: the answer that was kept
assert (code, words) == ("PERMISSION_DENIED", "the token does not allow this: table pushes, write"), (code, words)
pull = pb.PullRequest(header=header(), ids=[9], **table)
code, pulled = status(stub.Pull, pull, token("reader"))
assert code == "OK" and pulled.rows == b"\0" * 16, (code, pulled)
# Another token's session is none, whatever that token may do.
for name in ("admin", "writer"):
    code, answer = status(stub.Pull, pull, token(name))
    assert code == 21, (name, code, answer)
    code, answer = status(stub.Goodbye, pb.GoodbyeRequest(header=header()), token(name))
    assert code == 21, (name, code, answer)
# One of the same rights for the same tables may follow it, and be followed.
for name in ("second", "reader"):
    code, answer = status(stub.Pull, pull, token(name))
    assert code == "OK", (name, code, answer)
# A stream that is not allowed.
reply = stub.Hello(hello, metadata=token("other"), timeout=20)
stream = stub.Export(pb.ExportRequest(header=header(), **table), metadata=token("other"), timeout=20)
try:
    blocks = list(stream)
    raise AssertionError(blocks)
except grpc.RpcError as error:
    assert error.code().name == "PERMISSION_DENIED" and "pushes, read" in error.details(), error
# Health is for anybody.
check = channel.unary_unary("/grpc.health.v1.Health/Check")
assert check(b"", timeout=20) == b"\x08\x01"
