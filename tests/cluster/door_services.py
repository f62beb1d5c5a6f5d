"""The door's services that are not embps's own, asked by clients that protoc and its plugin made.

door_services.py STUBS ADDRESS CHECK: STUBS is the folder with the generated modules. CHECK:
  reflection  names every service; gives every file as protoc makes it; a client made from that pulls
  watch       is told SERVING, prints "watching", and must then be told NOT_SERVING and UNAVAILABLE
"""

import sys

import grpc

sys.path.insert(0, sys.argv[1])
grpc.__path__.append(sys.argv[1] + "/grpc")  # the standard services' own packages
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc.reflection.v1 import reflection_pb2, reflection_pb2_grpc  # noqa: E402
from grpc.reflection.v1alpha import reflection_pb2 as alpha_pb2  # noqa: E402
from grpc.reflection.v1alpha import reflection_pb2_grpc as alpha_pb2_grpc  # noqa: E402
from proto import embps_pb2  # noqa: E402

FILES = [embps_pb2, health_pb2, reflection_pb2, alpha_pb2]
SERVICES = {"embps.v1.Embps": embps_pb2, "grpc.health.v1.Health": health_pb2,
            "grpc.reflection.v1.ServerReflection": reflection_pb2,
            "grpc.reflection.v1alpha.ServerReflection": alpha_pb2}


def channel_to(address):
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])


def file_of(answer):
    """The one file of an answer, without what names in C or Python add to it."""
    one, = answer.file_descriptor_response.file_descriptor_proto
    return descriptor_pb2.FileDescriptorProto.FromString(one)


def expected_file(module):
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def without_json_names(file):
    """json_name follows from the name, and not every compiler writes it."""
    def strip(message):
        for field in message.field:
            field.ClearField("json_name")
        for inner in message.nested_type:
            strip(inner)
    for message in file.message_type:
        strip(message)
    return file


def ask_all(stub, pb, questions):
    requests = [pb.ServerReflectionRequest(host="here", **question) for question in questions]
    answers = list(stub.ServerReflectionInfo(iter(requests), timeout=250))
    assert len(answers) == len(requests)
    for request, answer in zip(requests, answers):
        assert answer.original_request == request and answer.valid_host == "here"
    return answers


def pull_by_reflection(channel, files):
    """A call by names alone, from the files that the server gave."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    service = pool.FindServiceByName("embps.v1.Embps")
    factory = message_factory.MessageFactory(pool)

    def call(method_name, **fields):
        method = service.FindMethodByName(method_name)
        asked = factory.GetPrototype(method.input_type)
        answered = factory.GetPrototype(method.output_type)
        made = channel.unary_unary(f"/{service.full_name}/{method_name}", asked.SerializeToString, answered.FromString)
        reply = made(asked(**fields), timeout=250)
        assert reply.header.status == 0, reply.header.message
        return reply

    hello = call("Hello", header={"protocol": 1})
    header = {"protocol": 1, "cluster": hello.cluster, "map_epoch": hello.map_epoch, "session": hello.session}
    table = call("OpenTable", header={**header, "sequence": 1}, name="reflected", dim=2, init="zeros",
                 optimizer="sgd", seed=1)
    reply = call("Pull", header=header, table=table.table, table_epoch=table.table_epoch, staleness=2**32 - 1,
                 ids=[1, 2, 3])
    assert reply.rows == bytes(4 * 2 * 3)
    call("Goodbye", header={**header, "sequence": 2})


def reflection_check(address):
    channel = channel_to(address)
    for pb, stubs in ((reflection_pb2, reflection_pb2_grpc), (alpha_pb2, alpha_pb2_grpc)):
        stub = stubs.ServerReflectionStub(channel)
        listed, = ask_all(stub, pb, [{"list_services": "*"}])
        assert {s.name for s in listed.list_services_response.service} == set(SERVICES)
        assert len(listed.list_services_response.service) == len(SERVICES)
        by_name = ask_all(stub, pb, [{"file_by_filename": module.DESCRIPTOR.name} for module in FILES])
        files = [without_json_names(file_of(answer)) for answer in by_name]
        assert files == [without_json_names(expected_file(module)) for module in FILES]
        questions, expected = [], []
        for name, module in SERVICES.items():
            service = module.DESCRIPTOR.services_by_name[name.rsplit(".", 1)[1]]
            symbols = [name] + [f"{name}.{method.name}" for method in service.methods]
            for message in module.DESCRIPTOR.message_types_by_name.values():
                symbols += [message.full_name] + [field.full_name for field in message.fields]
            questions += [{"file_containing_symbol": symbol} for symbol in symbols]
            expected += [module.DESCRIPTOR.name] * len(symbols)
        answers = ask_all(stub, pb, questions)
        assert [file_of(answer).name for answer in answers] == expected
        missing = ask_all(stub, pb, [
            {"file_by_filename": "other.proto"}, {"file_containing_symbol": "embps.v1.Other"},
            {"all_extension_numbers_of_type": "embps.v1.Other"},
            {"file_containing_extension": {"containing_type": "embps.v1.PullRequest", "extension_number": 1}}])
        for answer in missing:
            assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0], answer
            assert answer.error_response.error_message
        pull_by_reflection(channel, files)
    channel.close()
    print("what reflection says is right")


def watch_check(address):
    channel = channel_to(address)
    stub = health_pb2_grpc.HealthStub(channel)
    response = health_pb2.HealthCheckResponse
    other = stub.Watch(health_pb2.HealthCheckRequest(service="other"), timeout=250)
    assert next(other).status == response.SERVICE_UNKNOWN
    other.cancel()
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="embps.v1.Embps"), timeout=250)
    assert next(watch).status == response.SERVING
    print("watching", flush=True)
    assert next(watch).status == response.NOT_SERVING
    try:
        next(watch)
        raise AssertionError("the server goes on")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    print("told")


if __name__ == "__main__":
    {"reflection": reflection_check, "watch": watch_check}[sys.argv[3]](sys.argv[2])
