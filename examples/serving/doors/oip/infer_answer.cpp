// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/infer_answer.hpp"

#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <limits>
#include <utility>

namespace accel::examples::serving::oip {

answer_maker::answer_maker(const model_description& model, std::string_view id, std::span<const output_choice> chosen,
                           std::vector<tensor> outputs, std::span<const std::byte> payload)
    : model_(model), chosen_(chosen), outputs_(std::move(outputs)), payload_(payload) {
    made_.head = R"({"model_name":)" + json_string(model.name) + R"(,"model_version":"1",)";
    if (!id.empty()) made_.head += R"("id":)" + json_string(id) + ',';
    made_.head += R"("outputs":[)";
}

result<bool> answer_maker::step(std::size_t characters) {
    for (; next_ < chosen_.size(); ++next_) {
        const output_choice& one = chosen_[next_];
        const named_tensor& declared = model_.outputs[one.index];
        const auto within = [&](const error& why) {
            return refusal(why.code, "output " + in_quotes(declared.name) + ": " + why.message);
        };
        if (!writer_)
            if (auto begun = begin_output(one); !begun) return within(begun.error());
        if (writer_) {
            const auto more = writer_->step(characters, made_.head);
            if (!more) return within(more.error());
            if (more.value()) return true;
            writer_.reset();
        }
        made_.head += '}';
    }
    made_.head += "]}";
    return false;
}

/// Up to its elements in JSON, if it has any. Of one in a region it says nothing else, as Triton does: clients take
/// "parameters" for those of binary data.
result<void> answer_maker::begin_output(const output_choice& one) {
    const named_tensor& declared = model_.outputs[one.index];
    const tensor& what = outputs_[one.index];
    const auto shown = shown_tensor(declared, what, payload_);
    if (!shown) return shown.error();
    const auto elements = bytes_of(what, payload_);
    std::string& to = made_.head;
    if (next_ > 0) to += ',';
    to += R"({"name":)" + json_string(declared.name) + R"(,"datatype":")";
    to += datatype_of(declared);
    to += R"(","shape":)" + real_shape_text(shown.value());
    if (one.region) return {};
    if (one.binary) {
        to += R"(,"parameters":{"binary_data_size":)" + std::to_string(elements.size()) + '}';
        made_.tensors.push_back(elements);
        made_.binary_bytes += elements.size();
    } else {
        return begin_elements(declared, what);
    }
    return {};
}

result<void> answer_maker::begin_elements(const named_tensor& declared, const tensor& what) {
    const auto elements = bytes_of(what, payload_);
    if (elements.size() > max_json_output_bytes)
        return refusal(status::invalid_argument, "it is too large for JSON: ask for binary data");
    made_.head += R"(,"data":)";
    writer_.emplace(what, declared.strings, elements);
    return {};
}

std::uint64_t answer_maker::longest_json() const noexcept {
    std::uint64_t sum = 0;
    for (const output_choice& each : chosen_)
        if (!each.binary && !each.region)
            sum += oip::longest_json(outputs_[each.index], model_.outputs[each.index].strings);
    return sum;
}

result<infer_answer> make_answer(const model_description& model, std::string_view id,
                                 std::span<const output_choice> chosen, std::span<const tensor> outputs,
                                 std::span<const std::byte> payload) {
    answer_maker maker{model, id, chosen, {outputs.begin(), outputs.end()}, payload};
    const auto more = maker.step(std::numeric_limits<std::int32_t>::max());
    if (!more) return more.error();
    return std::move(maker.made());
}

}  // namespace accel::examples::serving::oip
