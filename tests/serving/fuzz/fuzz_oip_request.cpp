// SPDX-License-Identifier: Apache-2.0
// A request of the Open Inference Protocol over HTTP: the length of its body (8 bytes, little-endian), the length of a
// header field and the field (Inference-Header-Content-Length), then its path, and its JSON.
#include "fuzz_target.hpp"
#include "serving/doors/oip/body_plan.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/oip/head_reader.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace accel::examples::serving;
using accel::tests::require;

oip::model_description model_of(std::string_view text) {
    return oip::read_description(text).value();
}

const oip::model_description& served() {
    static const oip::model_description model = model_of(R"({"name":"m",
            "inputs":[{"name":"a","datatype":"FP32","shape":[1,2]},{"name":"b","datatype":"UINT8","shape":[3]}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})");
    return model;
}

/// A model with one input, which takes raw bodies.
const oip::model_description& raw_served() {
    static const oip::model_description model = model_of(R"({"name":"r",
            "inputs":[{"name":"a","datatype":"INT16","shape":[100]}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})");
    return model;
}

/// Its shapes are the request's, and one input is strings.
const oip::model_description& open_served() {
    static const oip::model_description model = model_of(R"({"name":"o",
            "inputs":[{"name":"a","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                      {"name":"b","datatype":"BYTES","shape":[-1],"max_bytes":100}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})");
    return model;
}

/// Writes all inputs, into room of just the right size; each byte is written, so both values of it are the same after.
void fill(oip::infer_request request, const oip::model_description& model, std::uint64_t binary_bytes) {
    const std::uint64_t most = oip::json_data_bytes(request, model);
    if (const auto read = oip::read_json_inputs(request, model); !read)
        return require(!read.error().message.empty(), "a refusal has a sentence");
    std::uint64_t taken = 0;
    for (const auto& each : request.inputs) taken += each.data.size();
    require(taken <= most, "the memory is known before it is taken");
    require(request.payload.bytes() <= model.input_bytes, "no payload is longer than the model's");
    std::vector<std::byte> rooms[2];
    for (std::size_t i = 0; i < 2; ++i) {
        rooms[i].assign(request.payload.bytes(), static_cast<std::byte>(i + 1));
        oip::write_json_inputs(request, rooms[i]);
        std::uint64_t placed = 0;
        for (const auto place : oip::binary_places(request, rooms[i])) {
            std::fill(place.begin(), place.end(), std::byte{9});
            placed += place.size();
        }
        require(placed == binary_bytes, "the binary section has a place, and no more");
    }
    require(rooms[0] == rooms[1], "each byte of the payload is written");
    static_cast<void>(request.payload.check_strings(model, rooms[0]));
    require(request.inputs.size() == model.inputs.size(), "each input is given");
    require(request.outputs.size() <= model.outputs.size(), "outputs are the model's");
}

void judge(accel::result<oip::infer_request> read, const oip::model_description& model, std::uint64_t binary) {
    if (read)
        fill(std::move(read).value(), model, binary);
    else
        require(!oip::error_document(read.error().message).empty(), "a refusal has a sentence");
}

/// What the lengths of a request say before its body is read.
std::uint64_t binary_bytes_of(std::uint64_t body_bytes, std::string_view field) {
    constexpr std::uint64_t longest_json = 1 << 16;
    auto plan = oip::plan_body(body_bytes, field.empty() ? std::nullopt : std::optional{field});
    if (!plan) {
        require(!field.empty() && oip::number_of(field).value_or(body_bytes + 1) != body_bytes,
                "a refusal has a reason");
        return body_bytes;
    }
    require(plan->json_bytes + plan->binary_bytes == body_bytes && plan->json_bytes <= body_bytes,
            "the parts are the body");
    require(!plan->is_raw() || plan->binary_bytes == body_bytes, "a raw body is all tensor");
    // Tensors beside JSON are not read before it, which tells what is wrong with them.
    if (oip::check_body(*plan, served(), longest_json))
        require(plan->json_bytes <= longest_json &&
                    (!plan->is_raw() || plan->binary_bytes <= oip::binary_input_bytes(served())),
                "no JSON is longer than the limit, and no raw body than the model's");
    return plan->binary_bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    std::uint64_t body_bytes = 0;
    for (int shift = 0; shift < 64; shift += 8) body_bytes |= std::uint64_t{input.byte()} << shift;
    const auto text_of = [](std::span<const std::uint8_t> bytes) {
        return std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    };
    const std::size_t field_bytes = input.byte() % 32;
    const std::string_view field = text_of(input.bytes(field_bytes));
    const std::string_view text = text_of(input.rest());
    const std::uint64_t binary = binary_bytes_of(body_bytes, field);
    if (const auto to = oip::find_route(text); to)
        require(to.value().what <= oip::action::region_unregister, "a path leads to an action");
    static_cast<void>(oip::read_description(text));
    for (const oip::model_description* each : {&served(), &open_served()}) {
        judge(oip::read_generate(text, *each), *each, 0);
        judge(oip::read_infer_head(text, binary, *each), *each, binary);
    }
    oip::head_reader heads;
    for (int i = 0; i < 2; ++i) judge(heads.read(text, binary, open_served()), open_served(), binary);
    judge(oip::raw_infer_request(binary, raw_served()), raw_served(), binary);
    return 0;
}
