// SPDX-License-Identifier: Apache-2.0
// A request of the Open Inference Protocol: the length of its binary section, its path, and its JSON.
#include "fuzz_target.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/route.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace {

using namespace accel::examples::serving;

const oip::model_description& served() {
    static const oip::model_description model = oip::read_description(R"({"name":"m",
            "inputs":[{"name":"a","datatype":"FP32","shape":[1,2]},{"name":"b","datatype":"UINT8","shape":[3]}],
            "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
                                                    .value();
    return model;
}

/// Writes all inputs, into room of just the right size.
void fill(const oip::infer_request& request, std::uint64_t binary_bytes) {
    const auto& model = served();
    std::vector<std::byte> room(model.input_bytes);
    oip::write_json_inputs(request, model, room);
    std::uint64_t placed = 0;
    for (const auto place : oip::binary_places(request, model, room)) {
        std::fill(place.begin(), place.end(), std::byte{1});
        placed += place.size();
    }
    accel::tests::require(placed == binary_bytes, "the binary section has a place, and no more");
    accel::tests::require(request.inputs.size() == model.inputs.size(), "each input is given");
    accel::tests::require(!request.outputs.empty() && request.outputs.size() <= model.outputs.size(),
                          "outputs are the model's");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    const std::uint64_t binary_bytes = input.byte();
    const std::string_view text{reinterpret_cast<const char*>(input.rest().data()), input.rest().size()};
    if (const auto to = oip::find_route(text); to)
        accel::tests::require(to.value().what <= oip::action::infer, "a path leads to an action");
    static_cast<void>(oip::read_description(text));
    const auto read = oip::read_infer_head(text, binary_bytes, served());
    if (read)
        fill(read.value(), binary_bytes);
    else
        accel::tests::require(!oip::error_document(read.error().message).empty(), "a refusal has a sentence");
    return 0;
}
