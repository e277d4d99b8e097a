// SPDX-License-Identifier: Apache-2.0
// A gRPC message of the Open Inference Protocol: the length of its slices, and its bytes.
#include "fuzz_target.hpp"
#include "serving/doors/grpc/infer_inputs.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/grpc/reflection.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace {

using namespace accel::examples::serving;

const oip::model_description& served() {
    static const oip::model_description model = oip::read_description(R"({"name":"m",
            "inputs":[{"name":"a","datatype":"FP32","shape":[1,2]},{"name":"b","datatype":"INT8","shape":[3]}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
                                                    .value();
    return model;
}

/// Its shapes are the request's, and one input is strings.
const oip::model_description& open_served() {
    static const oip::model_description model = oip::read_description(R"({"name":"o",
            "inputs":[{"name":"a","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                      {"name":"b","datatype":"BYTES","shape":[-1],"max_bytes":100}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
                                                    .value();
    return model;
}

std::vector<wire::slice> cut(std::span<const std::byte> message, std::size_t length) {
    std::vector<wire::slice> out;
    for (; !message.empty(); message = message.subspan(out.back().size()))
        out.push_back(message.first(std::min(length, message.size())));
    return out;
}

/// Writes all inputs, into room of just the right size; each byte is written, so both values of it are the same after.
void fill(const wire::wire_request& request, const oip::model_description& model) {
    accel::tests::require(request.payload.bytes() <= model.input_bytes, "no payload is longer than the model's");
    std::vector<std::byte> one(request.payload.bytes(), std::byte{1});
    std::vector<std::byte> other(request.payload.bytes(), std::byte{2});
    wire::write_inputs(request, model, one);
    wire::write_inputs(request, model, other);
    static_cast<void>(request.payload.check_strings(model, one));
    accel::tests::require(one == other, "each byte of the payload is written");
    accel::tests::require(request.inputs.size() == model.inputs.size(), "each input is given");
    accel::tests::require(!request.outputs.empty() && request.outputs.size() <= model.outputs.size(),
                          "outputs are the model's");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    const std::size_t length = input.byte() % 16 + std::size_t{1};
    const auto bytes = std::as_bytes(input.rest());
    const auto slices = cut(bytes, length);
    static_cast<void>(wire::read_named_message(slices));
    if (const auto answer = wire::answer_reflection(slices))
        accel::tests::require(answer.value().size() > bytes.size(), "an answer repeats its request");
    auto message = wire::read_infer_message(slices);
    if (!message) return 0;
    for (const oip::model_description* each : {&served(), &open_served()}) {
        auto request = wire::fit_to_model(message.value(), *each);
        if (request)
            fill(request.value(), *each);
        else
            accel::tests::require(!request.error().message.empty(), "a refusal has a sentence");
    }
    return 0;
}
