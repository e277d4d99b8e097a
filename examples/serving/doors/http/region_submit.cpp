// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/region_submit.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace accel::examples::serving::doors {
namespace {

result<void> as_result(status sent) {
    if (sent == status::ok) return {};
    return oip::refusal(sent, "the call failed: " + std::string{to_string(sent)});
}

}  // namespace

result<std::shared_ptr<shared_memory::region_table>> open_regions(context& ctx, const shared_memory::permission& may,
                                                                  const model_table& models) {
    if (!may.system && !may.cuda) return std::shared_ptr<shared_memory::region_table>{};
    const bool lends = std::ranges::any_of(
        models, [](const auto& each) { return shared_memory::reads_in_place(each.second.to->line().scheme()); });
    return shared_memory::region_table::open(ctx, may, lends);
}

submit_options options_of(std::chrono::nanoseconds timeout, std::uint32_t parts, const door_settings& settings) {
    submit_options out;
    out.timeout = timeout;
    if (parts == 0) return out;
    out.parts = parts;
    out.part_timeout = settings.part_timeout;
    if (timeout.count() == 0) out.timeout = settings.stream_timeout;
    return out;
}

result<void> submit_request(const served_model& model, call_id id, std::span<std::byte> room,
                            submit_options options, shared_memory::call_regions& regions,
                            const std::shared_ptr<caller>& who) {
    std::array<tensor, max_tensors> all;
    const auto& declared = model.description.inputs;
    std::ranges::transform(declared, all.begin(), &oip::named_tensor::what);
    const std::span<const tensor> placed = std::span{all}.first(declared.size());
    options.target = model.target;
    options.tensors = placed;
    // A call with a short deadline of its own might end before the server has written, and the channel with it.
    if (options.timeout.count() == 0) options.response_into = regions.place_of_response(model.description);
    if (regions.has_inputs()) {
        const std::vector<slice> lent = regions.lend(placed, model.to->line().scheme());
        const status sent = lent.empty() ? status::unsupported : model.to->submit(id, lent, options, who);
        if (sent != status::unsupported) return as_result(sent);
        if (auto copied = regions.copy_in(placed, room); !copied) return copied;
    }
    return as_result(model.to->submit(id, room.size(), options, who));
}

}  // namespace accel::examples::serving::doors
