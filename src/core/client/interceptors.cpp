// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"

#include <accel_transport/interceptor.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

/// What a channel's interceptors see of its calls.
namespace accel {

status outgoing_call::add_metadata(std::string_view key, std::string_view value) noexcept {
    const std::size_t count = options.metadata.size();
    if (count >= room_.entries.size()) return status::message_too_large;
    if (key.size() > room_.bytes.size() - used_ || value.size() > room_.bytes.size() - used_ - key.size())
        return status::message_too_large;
    if (options.metadata.data() != room_.entries.data()) std::ranges::copy(options.metadata, room_.entries.begin());
    const auto keep = [this](std::string_view text) {
        char* const to = room_.bytes.data() + used_;
        if (!text.empty()) std::memcpy(to, text.data(), text.size());
        used_ += text.size();
        return std::string_view{to, text.size()};
    };
    const std::string_view kept = keep(key);
    room_.entries[count] = {kept, keep(value)};
    options.metadata = {room_.entries.data(), count + 1};
    return status::ok;
}

}  // namespace accel

namespace accel::core {
namespace {

/// What callers take for the state of the channel is not an interceptor's to say.
constexpr status as_refusal(status said) noexcept {
    const bool of_channel =
        said == status::again || said == status::closed || said == status::peer_lost || said == status::device_lost;
    return of_channel ? status::overloaded : said;
}

}  // namespace

std::uint64_t channel_core::next_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// `asked`, with what interceptors may change.
submit_options channel_core::changed_by(const outgoing_call& call, const submit_options& asked) noexcept {
    submit_options out = asked;
    out.timeout = call.options.timeout;
    out.trace_id = call.options.trace_id;
    out.trace = call.options.trace;
    out.baggage = call.options.baggage;
    out.metadata = call.options.metadata;
    out.target = call.options.target;
    return out;
}

/// `seen`: how many of them have seen the call.
status channel_core::ask_interceptors(outgoing_call& call, std::size_t& seen) noexcept {
    for (const auto& each : request_.options.interceptors) {
        ++seen;
        if (const status said = each->before(call); said != status::ok)
            return fail(as_refusal(said), "an interceptor refused the call");
    }
    return status::ok;
}

/// The first `seen` of them.
void channel_core::tell_interceptors(const call_outcome& ended, std::size_t seen) const noexcept {
    const auto& all = request_.options.interceptors;
    while (seen > 0) all[--seen]->after({number_, ended});
}

void channel_core::tell_interceptors(const call_outcome& ended) const noexcept {
    tell_interceptors(ended, request_.options.interceptors.size());
}

/// Completions that nobody has taken. The channel is closed, so all calls have ended, but for a copy of a stuck GPU.
void channel_core::end_interceptions() noexcept {
    if (!std::exchange(intercepted_, false)) return;
    for (const channel_slot& slot : slots_.all())
        if ((slot.state == slot_state::done && !slot.content.more) || slot.state == slot_state::settling)
            tell_interceptors(slot.content);
}

}  // namespace accel::core
