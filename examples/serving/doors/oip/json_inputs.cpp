// SPDX-License-Identifier: Apache-2.0
// Inputs of a request that stand in JSON.
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

/// Of an element that stands alone.
tensor scalar_of(const tensor& what) {
    return {.type = what.type, .rank = 0, .offset = 0, .shape = {}};
}

error within(const named_tensor& input, const error& why) {
    return refusal(why.code, "input " + in_quotes(input.name) + ": " + why.message);
}

/// A string, and zeros up to the end of the tensor.
result<std::vector<std::byte>> read_padded(const input_source& from, const named_tensor& input) {
    const auto text = read_string(from.text);
    if (!text) return within(input, text.error());
    const auto bytes = std::as_bytes(std::span{text.value()});
    if (bytes.size() > input.max_bytes)
        return mistake_in(input, "the text is longer than " + std::to_string(input.max_bytes) + " bytes");
    std::vector<std::byte> out(bytes.begin(), bytes.end());
    out.resize(input.max_bytes);
    return out;
}

}  // namespace

result<bool> json_inputs::step(std::size_t characters) {
    for (; next_ < request_.inputs.size(); ++next_) {
        input_source& one = request_.inputs[next_];
        const named_tensor& input = model_.inputs[one.index];
        if (one.form == input_form::binary) continue;
        if (one.form == input_form::padded) {
            auto read = read_padded(one, input);
            if (!read) return read.error();
            one.data = std::move(read).value();
            request_.payload.set(input, one.index, one.shape, one.data.size());
            continue;
        }
        if (!reader_) begin(one);
        const auto more = reader_->step(characters);
        if (!more) return within(input, more.error());
        if (more.value()) return true;
        if (auto ended = end(one); !ended) return ended.error();
    }
    request_.payload.place();
    return false;
}

void json_inputs::begin(const input_source& next) {
    const named_tensor& input = model_.inputs[next.index];
    const tensor shape = next.form == input_form::elements ? next.shape : scalar_of(next.shape);
    reader_.emplace(next.text, shape, input.strings, input.max_bytes);
}

result<void> json_inputs::end(input_source& done) {
    done.data = std::move(reader_->bytes());
    done.text = {};
    reader_.reset();
    request_.payload.set(model_.inputs[done.index], done.index, done.shape, done.data.size());
    return {};
}

std::uint64_t json_data_bytes(const infer_request& request, const model_description& model) noexcept {
    std::uint64_t sum = 0;
    for (const input_source& each : request.inputs) {
        const named_tensor& input = model.inputs[each.index];
        // A string has two quotes and a comma, and its length four bytes; a vector grows twofold.
        // A number has a comma, and a reader looks for no more than there can be.
        const std::uint64_t numbers = (each.text.size() / 2 + 1) * (input.what.type.bits / 8U);
        const std::uint64_t longest = input.strings ? std::min(input.max_bytes, 2 * each.text.size()) * 2
                                                    : std::min(size_bytes(each.shape), numbers);
        if (each.form != input_form::binary) sum += longest;
    }
    return sum;
}

result<void> read_json_inputs(infer_request& request, const model_description& model) {
    const auto more = json_inputs{request, model}.step(std::numeric_limits<std::int32_t>::max());
    if (!more) return more.error();
    return {};
}

}  // namespace accel::examples::serving::oip
