// SPDX-License-Identifier: Apache-2.0
// What a model's server answers: how many tensors it describes (byte 0), each as it lies in a message, which outputs
// are wanted as numbers (a byte of bits), the length of an id and the id, then the payload.
#include "fuzz_target.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/oip/infer_answer.hpp"

#include <cstring>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using namespace accel::examples::serving;
using accel::tensor;
using accel::tests::require;

const oip::model_description& served() {
    static const oip::model_description model = oip::read_description(R"({"name":"m",
            "inputs":[{"name":"x","datatype":"FP32","shape":[1]}],
            "outputs":[{"name":"f","datatype":"FP32","shape":[2]},{"name":"h","datatype":"FP16","shape":[1,3]},
                       {"name":"i","datatype":"INT64","shape":[1]},{"name":"b","datatype":"BOOL","shape":[5]}]})")
                                                    .value();
    return model;
}

std::vector<tensor> described_by(accel::tests::input_reader& input) {
    std::vector<tensor> out(input.byte() % 6);
    for (tensor& each : out) {
        const auto bytes = input.bytes(sizeof each);
        if (!bytes.empty()) std::memcpy(static_cast<void*>(&each), bytes.data(), bytes.size());
    }
    return out;
}

/// A request wants one output at least.
std::vector<oip::output_choice> chosen_by(std::uint8_t bits) {
    std::vector<oip::output_choice> out;
    for (std::size_t i = 0; i < served().outputs.size(); ++i)
        if (i == 0 || ((bits >> i) & 1) == 0) out.push_back({i, ((bits >> (i + 4)) & 1) != 0});
    return out;
}

void check_answer(const oip::infer_answer& made, std::span<const std::byte> payload) {
    require(nlohmann::json::accept(made.head), "the head is JSON");
    std::uint64_t sum = 0;
    for (const auto& each : made.tensors) {
        require(each.empty() ||
                    (each.data() >= payload.data() && each.data() + each.size() <= payload.data() + payload.size()),
                "tensors lie in the payload");
        sum += each.size();
    }
    require(sum == made.binary_bytes, "their bytes are counted");
}

}  // namespace

namespace {

/// Its shapes are the answer's, and one output is strings.
const oip::model_description& open_served() {
    static const oip::model_description model = oip::read_description(R"({"name":"o",
            "inputs":[{"name":"x","datatype":"FP32","shape":[1]}],
            "outputs":[{"name":"f","datatype":"FP32","shape":[-1,2],"max_bytes":128},
                       {"name":"s","datatype":"BYTES","shape":[-1],"max_bytes":128}]})")
                                                    .value();
    return model;
}

void answer_open(std::span<const tensor> described, std::string_view id, std::span<const std::byte> payload) {
    const auto outputs = oip::answered_tensors(open_served(), described, payload);
    if (!outputs) return;
    const oip::output_choice in_json[] = {{0, false}, {1, false}};
    if (auto made = oip::make_answer(open_served(), id, in_json, outputs.value(), payload); made)
        check_answer(made.value(), payload);
    const oip::output_choice binary[] = {{1, true}};
    require(oip::make_answer(open_served(), id, binary, outputs.value(), payload).ok(), "bytes can be said");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    const auto described = described_by(input);
    const auto chosen = chosen_by(input.byte());
    const std::size_t id_bytes = input.byte();
    const auto id_text = input.bytes(id_bytes);
    const std::string_view id{reinterpret_cast<const char*>(id_text.data()), id_text.size()};
    // Of its own size, so that every read beyond it is noticed.
    const auto rest = std::as_bytes(input.rest());
    const std::vector<std::byte> payload(rest.begin(), rest.end());
    answer_open(described, id, payload);
    auto outputs = oip::answered_tensors(served(), described, payload);
    if (!outputs) {
        require(!outputs.error().message.empty(), "a refusal has a sentence");
        return 0;
    }
    require(outputs->size() == served().outputs.size(), "each output is there");
    if (auto made = oip::make_answer(served(), id, chosen, *outputs, payload); made)
        check_answer(*made, payload);
    else
        require(!made.error().message.empty(), "a refusal has a sentence");
    const auto response = wire::make_response(served(), id, chosen, *outputs, payload);
    require(response.heads.size() == chosen.size() && response.tensors.size() == chosen.size(),
            "a head for each tensor");
    return 0;
}
