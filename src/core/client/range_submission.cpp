// SPDX-License-Identifier: Apache-2.0
#include "core/client/call_extras.hpp"
#include "core/region_state.hpp"

#include <algorithm>

/// Calls with lists of ranges: what the link takes as it is, and what is copied.
namespace accel::core {
namespace {

/// Ranges that are shorter on average are copied: handing each to the transport would cost more.
constexpr std::size_t worth_listing = 256;

bool is_worth_listing(const range_list& list) noexcept {
    return list.bytes / list.ranges.size() >= worth_listing;
}

/// All of a list with memory of a GPU: what is not reached cannot be copied together with it.
bool reaches_all(link& path, std::span<const lent_range> ranges) noexcept {
    const region_state* known = nullptr;
    return std::ranges::all_of(ranges, [&](const lent_range& each) {
        if (each.region == known) return true;
        known = each.region;
        return path.reaches(*known, false);
    });
}

}  // namespace

status call_extras::submit_ranges(channel_slot& slot, std::span<const slice> ranges,
                                  const submit_options& options) noexcept {
    const std::uint32_t index = slot.content.id.slot;
    const status unfit = calls_.gathered().keep(index, ranges, request_.options.request_bytes);
    if (unfit != status::ok) return unfit;
    if (const status bad = check_more(options); bad != status::ok) return bad;
    outgoing message{index, {}, nullptr, options.response_into};
    if (const status bad = gather(slot, options, message); bad != status::ok) return bad;
    return submit(slot, message, options);
}

/// The list of `slot` as a payload: as it is, where the link gathers, or copied into the slot.
status call_extras::gather(channel_slot& slot, const submit_options& options, outgoing& out) noexcept {
    const range_list& list = calls_.gathered().of(out.slot);
    std::byte* const room = slot.header + header_bytes;
    link& path = life_.path();
    if (list.ranges.empty()) {
        out.payload = {room, 0};
        return status::ok;
    }
    const lent_range& first = list.ranges.front();
    if (list.ranges.size() == 1) {
        out.payload = {first.data, first.size};
        out.region = first.region;
        return status::ok;
    }
    const slice into = options.response_into;
    const bool stages = is_staged(into.empty() ? nullptr : into.region(), true);
    const bool gathers = path.gathers() && !stages;
    if (list.on_gpu && !(gathers && reaches_all(path, list.ranges))) return status::unsupported;
    const bool copies = !gathers || (!list.on_gpu && !is_worth_listing(list));
    if (copies) {
        range_cursor{}.copy_out(list.ranges, room, list.bytes);
        calls_.count_copied(list.bytes);
        out.payload = {room, list.bytes};
        return status::ok;
    }
    out.ranges = list.ranges;
    out.range_bytes = list.bytes;
    out.region = first.region;
    return status::ok;
}

/// Where the response goes, piece by piece: by the link, or copied from its slot when it has arrived.
status call_extras::keep_scattered(outgoing& message, const submit_options& options) noexcept {
    range_lists& lists = calls_.scattered();
    const status bad = lists.keep(message.slot, options.response_ranges, max_payload_bytes);
    if (bad != status::ok) return bad;
    const range_list& list = lists.of(message.slot);
    if (list.on_gpu) return status::unsupported;
    const bool by_link = life_.path().scatters() && !list.ranges.empty() && is_worth_listing(list);
    if (!by_link) return status::ok;
    message.response_ranges = list.ranges;
    message.response_bytes = list.bytes;
    return status::ok;
}

/// For a response: where the call's own memory is shorter than a slot, the server may fill no more.
std::size_t call_extras::response_room(const channel_slot& slot, const submit_options& options) const noexcept {
    if (!options.response_ranges.empty()) return calls_.scattered().of(slot.content.id.slot).bytes;
    return options.response_into.empty() ? request_.options.response_bytes : options.response_into.size();
}

}  // namespace accel::core
