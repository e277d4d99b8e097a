# SPDX-License-Identifier: Apache-2.0
"""Traces of calls at the gRPC door."""
import struct

from pair import expect


def check_traces(address):
    """W3C Trace Context in the metadata reaches the model's server, and the answer's metadata repeat it."""
    import grpc
    from tritonclient.grpc import service_pb2
    trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    request = service_pb2.ModelInferRequest(model_name="traced")
    request.inputs.add(name="x", datatype="FP32", shape=[8]).contents.fp32_contents.extend([0] * 8)
    coders = {"request_serializer": service_pb2.ModelInferRequest.SerializeToString,
              "response_deserializer": service_pb2.ModelInferResponse.FromString}
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", **coders)
        for said, parent in [([trace], bytes.fromhex("b7ad6b7169203331")), ([], bytes(8)),
                             ([("traceparent", "00-none")], bytes(8))]:
            answer, call = infer.with_call(request, timeout=60, metadata=said)
            expect(struct.unpack("<8f", answer.raw_output_contents[0]) == tuple(parent), f"{said}: {answer}")
            expect((trace in call.initial_metadata()) == any(parent), f"{said}: {call.initial_metadata()}")
        request.model_name = "laden"
        for text, seen in [("a=1", (3, *b"a=1")), ("k=" + "v" * 143, (0,) * 4)]:
            answer, call = infer.with_call(request, timeout=60, metadata=[trace, ("baggage", text)])
            values = struct.unpack("<8f", answer.raw_output_contents[0])
            expect(values[:4] == seen, f"{text}: {values}")
            expect((("baggage", text) in call.initial_metadata()) == any(seen), f"{call.initial_metadata()}")
