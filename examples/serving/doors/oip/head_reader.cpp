// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/head_reader.hpp"

#include <algorithm>

namespace accel::examples::serving::oip {

result<infer_request> head_reader::read(std::string_view head, std::uint64_t binary_bytes,
                                        const model_description& model) {
    if (model_ == &model && binary_bytes_ == binary_bytes && head_ == head) return said_;
    auto said = read_infer_head(head, binary_bytes, model);
    if (said) keep(head, binary_bytes, model, said.value());
    return said;
}

/// Elements in JSON are views of their head.
void head_reader::keep(std::string_view head, std::uint64_t binary_bytes, const model_description& model,
                       const infer_request& said) {
    const auto is_binary = [](const input_source& each) { return each.form == input_form::binary; };
    if (head.size() > longest_kept || !std::ranges::all_of(said.inputs, is_binary)) return;
    head_ = head;
    binary_bytes_ = binary_bytes;
    model_ = &model;
    said_ = said;
}

}  // namespace accel::examples::serving::oip
