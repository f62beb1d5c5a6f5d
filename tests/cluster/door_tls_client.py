"""One Hello over TLS by a client made from the schema alone.

door_tls_client.py STUBS ADDRESS CA [CERT KEY [NAME]]: CA that the server must be signed by ("-": plain
text), certificate and key of one's own ("-": none), the name that the server must have. Prints "hello", or the
status that came instead.
"""

import pathlib
import sys

sys.path.insert(0, sys.argv[1])
import grpc  # noqa: E402
from proto import embps_pb2 as pb  # noqa: E402
from proto import embps_pb2_grpc as stubs  # noqa: E402

address, ca, cert, key, name = (sys.argv[2:] + ["-"] * 4)[:5]
options = [("grpc.enable_http_proxy", 0)]
if name != "-":
    options.append(("grpc.ssl_target_name_override", name))


def read(path):
    return pathlib.Path(path).read_bytes() if path != "-" else None


if ca == "-":
    channel = grpc.insecure_channel(address, options=options)
else:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(read(ca), read(key), read(cert)),
                                  options=options)
try:
    reply = stubs.EmbpsStub(channel).Hello(pb.HelloRequest(header=pb.RequestHeader(protocol=1)), timeout=120)
    assert reply.header.status == 0, reply.header.message
    print("hello")
except grpc.RpcError as error:
    print(error.code().name)
