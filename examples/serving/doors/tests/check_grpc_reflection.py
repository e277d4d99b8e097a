# SPDX-License-Identifier: Apache-2.0
"""Server reflection of the gRPC door, with the stock client grpcio-reflection from PyPI, and what it describes beside
the protocol's own definitions, as tritonclient has them. Skipped where PyPI is out of reach."""
import queue
import sys
import time

from client_environment import run_client
from pair import Pair, expect

FURTHER = ["grpcio-reflection==1.81.1"]
SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService"]
VERSIONS = ("v1alpha", "v1")


def info(channel, version):
    """ServerReflectionInfo. The versions have the same messages."""
    from grpc_reflection.v1alpha import reflection_pb2
    return channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                 request_serializer=lambda one: one if isinstance(one, bytes) else
                                 one.SerializeToString(),
                                 response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)


def ask(channel, version, **question):
    from grpc_reflection.v1alpha import reflection_pb2
    request = reflection_pb2.ServerReflectionRequest(host="here", **question)
    answer, = info(channel, version)(iter([request]), timeout=60)
    expect(answer.valid_host == "here" and answer.original_request == request, f"it repeats the request: {answer}")
    return answer


def code_of(call):
    import grpc
    try:
        call()
    except grpc.RpcError as failure:
        return failure.code().name
    return "OK"


def described(field):
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return (field.number, field.type, field.is_repeated, kind.full_name if kind else None,
            oneof.name if oneof else None)


def check_message(ours, stock):
    """Each field is one of the protocol's."""
    expect(ours.GetOptions().map_entry == stock.GetOptions().map_entry, f"{ours.full_name} is a map's, or not")
    for field in ours.fields:
        theirs = stock.fields_by_name.get(field.name)
        expect(theirs and described(field) == described(theirs), f"{field.full_name} is the protocol's")
    for nested in ours.nested_types:
        check_message(nested, stock.nested_types_by_name[nested.name])
    for each in ours.enum_types:
        expect([(v.name, v.number) for v in each.values] ==
               [(v.name, v.number) for v in stock.enum_types_by_name[each.name].values], f"{each.full_name}")


def check_service(ours, stock):
    for method in ours.methods:
        theirs = stock.methods_by_name[method.name]
        for one, other in ((method.input_type, theirs.input_type), (method.output_type, theirs.output_type)):
            expect(one.full_name == other.full_name, f"{method.full_name}: {one.full_name}")
        expect((method.client_streaming, method.server_streaming) ==
               (theirs.client_streaming, theirs.server_streaming), f"{method.full_name}: streams")


def check_descriptions(pool):
    from google.protobuf import descriptor_pool
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2
    from tritonclient.grpc import service_pb2
    expect(health_pb2 and reflection_pb2 and service_pb2, "their definitions are in the default pool")
    stock = descriptor_pool.Default()
    for name in SERVICES:
        ours = pool.FindServiceByName(name)
        if ".v1.ServerReflection" in name:
            continue  # no stock package has it; its messages are those of v1alpha
        check_service(ours, stock.FindServiceByName(name))
        for message in ours.file.message_types_by_name.values():
            check_message(message, stock.FindMessageTypeByName(message.full_name))
        for each in ours.file.enum_types_by_name.values():
            expect(dict(each.values_by_name.items()).keys() ==
                   dict(stock.FindEnumTypeByName(each.full_name).values_by_name.items()).keys(), each.full_name)
    both = [pool.FindServiceByName(f"grpc.reflection.{version}.ServerReflection").file for version in VERSIONS]
    texts = [file.serialized_pb.replace(version.encode(), b"") for file, version in zip(both, VERSIONS)]
    expect(len(texts[0]) == len(texts[1]), "both versions of reflection say the same")


def check_methods(channel, pool):
    """The door knows each method that it describes."""
    import grpc
    for name in SERVICES:
        for method in pool.FindServiceByName(name).methods:
            try:
                for _ in channel.stream_stream(f"/{name}/{method.name}")(iter([]), timeout=60):
                    pass
            except grpc.RpcError as failure:
                expect("no such method" not in failure.details(), f"{name}.{method.name}: {failure.details()}")


def check_infer(channel, pool):
    """A client that knows nothing but what the door has told."""
    from google.protobuf import message_factory
    method = pool.FindMethodByName("inference.GRPCInferenceService.ModelInfer")
    made = [message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type)]
    request = made[0](model_name="double", id="one",
                      inputs=[{"name": "x", "datatype": "FP32", "shape": [8], "contents": {"fp32_contents": range(8)}}])
    request.parameters["timeout"].int64_param = 10_000_000
    call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}",
                               request_serializer=made[0].SerializeToString, response_deserializer=made[1].FromString)
    answer = call(request, timeout=60)
    expect((answer.model_name, answer.id, answer.outputs[0].name) == ("double", "one", "y"), f"an inference: {answer}")


def check_questions(channel, version):
    def error_of(**question):
        return ask(channel, version, **question).error_response.error_code
    for symbol, file in [("inference.ModelInferRequest", "grpc_service.proto"),
                         ("inference.GRPCInferenceService.ModelInfer", "grpc_service.proto"),
                         ("inference.ModelInferRequest.InferInputTensor.ParametersEntry", "grpc_service.proto"),
                         ("inference.InferParameter.parameter_choice", "grpc_service.proto"),
                         ("inference.TYPE_FP32", "grpc_service.proto"),
                         ("grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto"),
                         ("grpc.reflection.v1.ErrorResponse", "grpc/reflection/v1/reflection.proto")]:
        by_symbol = ask(channel, version, file_containing_symbol=symbol).file_descriptor_response
        by_name = ask(channel, version, file_by_filename=file).file_descriptor_response
        expect(len(by_name.file_descriptor_proto) == 1 and by_symbol == by_name, f"the file of {symbol}")
    for symbol in ("inference.Nobody", "inference", "", "ModelInferRequest", "inference.ModelInferRequest."):
        expect(error_of(file_containing_symbol=symbol) == 5, f"there is no symbol '{symbol}'")
    expect(error_of(file_by_filename="nobody.proto") == 5, "there is no such file")
    expect(error_of(file_containing_extension={"containing_type": "inference.ModelConfig", "extension_number": 1}) == 5,
           "there is no such extension")
    none = ask(channel, version, all_extension_numbers_of_type="inference.ModelConfig").all_extension_numbers_response
    expect(none.base_type_name == "inference.ModelConfig" and not none.extension_number, "a message has no extensions")
    for name in ("inference.Nobody", "inference.GRPCInferenceService"):
        expect(error_of(all_extension_numbers_of_type=name) == 5, f"{name} is not a message")
    expect(error_of() == 3, "a request that asks for nothing")
    expect([each.name for each in ask(channel, version, list_services="").list_services_response.service] == SERVICES,
           "the services")


def check_streams(channel, version):
    """Several requests; those that no client should send end their stream."""
    from grpc_reflection.v1alpha import reflection_pb2
    stream = info(channel, version)
    one = reflection_pb2.ServerReflectionRequest(file_by_filename="grpc_service.proto")
    answers = list(stream(iter([one] * 100), timeout=60))
    expect(len(answers) == 100 and all(each == answers[0] for each in answers), "a stream has many answers")
    for code, message in [("INVALID_ARGUMENT", b"\x1a\x05abc"), ("INVALID_ARGUMENT", b"\x1a\x81\x02" + b"x" * 257),
                          ("INVALID_ARGUMENT", b"\x0a\x81\x02" + b"x" * 257),
                          ("RESOURCE_EXHAUSTED", b"\x7a\x80\x80\x04" + bytes(65536))]:
        expect(code_of(lambda m=message: list(stream(iter([m]), timeout=60))) == code, f"{message[:10]}: {code}")
    expect(list(stream(iter([]), timeout=60)) == [], "no request, no answer")


def talk(address):
    import grpc
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        expect(list(database.get_services()) == SERVICES, f"the services: {list(database.get_services())}")
        pool = DescriptorPool(database)
        check_descriptions(pool)
        check_methods(channel, pool)
        check_infer(channel, pool)
        for version in VERSIONS:
            check_questions(channel, version)
            check_streams(channel, version)


def silent_stream(channel):
    """A stream with one answer, whose client says nothing more; it has no deadline of its own."""
    from grpc_reflection.v1alpha import reflection_pb2
    requests = queue.SimpleQueue()
    requests.put(reflection_pb2.ServerReflectionRequest(list_services=""))
    answers = info(channel, "v1")(iter(requests.get, None))
    next(answers)
    return answers


def check_silence(address, code, least_s):
    import grpc
    with grpc.insecure_channel(address) as channel:
        began = time.monotonic()
        answers = silent_stream(channel)
        expect(code_of(lambda: next(answers)) == code, f"{code}: {answers.code()}")
        expect(float(least_s) <= time.monotonic() - began, "not before its time")


def check_number(address):
    """Of two calls."""
    import grpc
    with grpc.insecure_channel(address) as channel:
        kept = [silent_stream(channel), silent_stream(channel)]
        expect(code_of(lambda: silent_stream(channel)) == "RESOURCE_EXHAUSTED", "a third one is refused")
        for each in kept:
            each.cancel()
        deadline = time.monotonic() + 30
        while code_of(lambda: silent_stream(channel)) != "OK" and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(code_of(lambda: silent_stream(channel)) == "OK", "the others have ended")


def main():
    if sys.argv[1] in CLIENTS:
        CLIENTS[sys.argv[1]](*sys.argv[2:])
        return 0
    pair = lambda *options: Pair(*sys.argv[1:3], *options, doors=("grpc",))
    client = lambda at, *what: run_client(__file__, what[0], at.address, *what[1:], further=FURTHER)
    with pair() as door:
        failed = client(door, "talk")
    if failed:
        return failed
    with pair("--stream-timeout", "1s") as door:
        failed = client(door, "silence", "DEADLINE_EXCEEDED", "0.9")
    with pair("--max-calls", "2", "--body-grace", "60s") as door:
        failed = failed or client(door, "number")
    return failed


CLIENTS = {"talk": talk, "silence": check_silence, "number": check_number}

if __name__ == "__main__":
    sys.exit(main())
