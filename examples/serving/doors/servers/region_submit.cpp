// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/region_submit.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {
namespace {

result<void> as_result(status sent, const submit_options& options) {
    if (sent == status::ok) return {};
    // The payload has a slot, which is long enough for it.
    if (sent == status::message_too_large && !options.metadata.empty())
        return oip::refusal(sent, "the model's server accepts no longer requests, so the headers to pass do not fit");
    return oip::refusal(sent, "the call failed: " + std::string{to_string(sent)});
}

bool may_read_in_place(std::string_view scheme) {
    return scheme == "auto" || shared_memory::reads_in_place(scheme);
}

/// `unsupported`: the regions cannot be lent, and nothing was sent.
status lend_request(const call_slot& slot, const submit_options& options, shared_memory::call_regions& regions,
                    const std::shared_ptr<caller>& who) {
    const std::vector<slice> lent = regions.lend(options.tensors, slot.on->path().scheme());
    return lent.empty() ? status::unsupported : slot.on->submit(slot.id, lent, options, who);
}

}  // namespace

result<std::shared_ptr<shared_memory::region_table>> open_regions(context& ctx, const shared_memory::permission& may,
                                                                  const model_table& models) {
    if (!may.system && !may.cuda) return std::shared_ptr<shared_memory::region_table>{};
    const bool lends =
        std::ranges::any_of(models, [](const auto& each) { return each.second.to->any_scheme(may_read_in_place); });
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

error deadline_passed() {
    return oip::refusal(status::timed_out, "the deadline has passed");
}

result<void> submit_request(const served_model& model, const oip::request_payload& payload, const call_slot& slot,
                            submit_options options, shared_memory::call_regions& regions,
                            const std::shared_ptr<caller>& who) {
    options.parts = slot.parts;
    const std::size_t bytes = payload.bytes();
    options.target = model.target;
    options.tensors = payload.tensors();
    // A call with a short deadline of its own might end before the server has written, and the channel with it.
    if (options.timeout.count() == 0) options.response_into = regions.place_of_response(model.description);
    if (regions.has_inputs()) {
        const status sent = payload.has_strings() ? status::unsupported : lend_request(slot, options, regions, who);
        if (sent != status::unsupported) return as_result(sent, options);
        if (auto copied = regions.copy_in(options.tensors, slot.request.first(bytes)); !copied) return copied;
    }
    if (auto good = payload.check_strings(model.description, slot.request.first(bytes)); !good) return good;
    return as_result(slot.on->submit(slot.id, bytes, options, who), options);
}

}  // namespace accel::examples::serving::doors
