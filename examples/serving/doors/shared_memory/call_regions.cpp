// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/call_regions.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::shared_memory {
namespace {

error too_short(const oip::named_tensor& output, std::uint64_t bytes, std::uint64_t room) {
    return oip::refusal(status::invalid_argument, "output " + oip::in_quotes(output.name) + " has " +
                                                      std::to_string(bytes) +
                                                      " bytes, but shared_memory_byte_size is " + std::to_string(room));
}

}  // namespace

bool reads_in_place(std::string_view scheme) noexcept {
    return scheme == "rdma" || scheme == "gdr" || scheme == "gpu" || scheme == "shm";
}

result<call_regions> call_regions::open(const std::shared_ptr<region_table>& table,
                                        std::span<const oip::region_input> inputs,
                                        std::span<const oip::output_choice> outputs,
                                        const oip::model_description& model) {
    call_regions out;
    for (const oip::region_input& each : inputs) {
        if (table == nullptr) return no_regions();
        auto found = table->find(each.index, each.from);
        if (!found) return found.error();
        out.inputs_.push_back(std::move(found).value());
    }
    for (const oip::output_choice& each : outputs) {
        if (!each.region) continue;
        if (table == nullptr) return no_regions();
        auto found = table->find(each.index, *each.region);
        if (!found) return found.error();
        const oip::named_tensor& declared = model.outputs[each.index];
        if (declared.is_fixed() && size_bytes(declared.what) > found->bytes)
            return too_short(declared, size_bytes(declared.what), found->bytes);
        out.outputs_.push_back(std::move(found).value());
    }
    if (!out.inputs_.empty() || !out.outputs_.empty()) out.table_ = table;
    return out;
}

result<void> call_regions::copy_in(std::span<const tensor> placed, std::span<std::byte> payload) {
    for (const use& each : inputs_) {
        const auto place = bytes_of(placed[each.tensor], payload);
        if (auto copied = each.where->read(each.offset, place); !copied) return copied;
        table_->count_copied(place.size());
    }
    return {};
}

std::vector<slice> call_regions::lend(std::span<const tensor> placed, std::string_view scheme) {
    if (inputs_.size() != placed.size()) return {};
    std::ranges::sort(inputs_, {}, &use::tensor);
    std::vector<slice> out;
    std::uint64_t end = 0;
    for (const use& each : inputs_) {
        // What a channel cannot read on a GPU it copies, but of one slice alone.
        if (each.where->on_gpu() ? placed.size() > 1 : !reads_in_place(scheme)) return {};
        const std::uint64_t begin = placed[each.tensor].offset;
        if (begin > end) out.push_back(table_->zeros(begin - end));
        out.push_back(each.where->lend(each.offset, each.bytes));
        if (out.back().empty() && each.bytes > 0) return {};
        end = begin + each.bytes;
    }
    lent_ = true;
    return out;
}

slice call_regions::place_of_response(const oip::model_description& model) {
    const bool only = outputs_.size() == 1 && model.outputs.size() == 1 && model.outputs.front().is_fixed();
    if (!only || !outputs_.front().where->on_gpu()) return {};
    const slice out = outputs_.front().where->lend(outputs_.front().offset, outputs_.front().bytes);
    in_place_ = !out.empty();
    return out;
}

result<void> call_regions::copy_out(const oip::model_description& model, std::span<const tensor> outputs,
                                    std::span<const std::byte> payload) {
    if (in_place_) return {};
    for (const use& each : outputs_) {
        const auto from = bytes_of(outputs[each.tensor], payload);
        if (from.size() > each.bytes) return too_short(model.outputs[each.tensor], from.size(), each.bytes);
        if (auto copied = each.where->write(each.offset, from); !copied) return copied;
        table_->count_copied(from.size());
    }
    return {};
}

result<void> call_regions::check_kept() const {
    const bool lost = lent_ && std::ranges::any_of(inputs_, [](const use& each) { return each.where->lost(); });
    if (!lost) return {};
    return oip::refusal(status::invalid_argument, "the shared memory was shortened during the call: register it again");
}

void call_regions::clear() {
    *this = {};
}

}  // namespace accel::examples::serving::shared_memory
