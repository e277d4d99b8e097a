// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/link.hpp"
#include "backends/rdma/poller.hpp"

#include <algorithm>
#include <array>

/// Payloads in ranges: each work request gathers some of them into one piece of the peer's slot, the header's comes
/// last. What the send queue has no room for is posted by later calls; until then the peer knows nothing of the
/// message.
namespace accel::rdma {

/// Work requests on their way into the send queue, and their ranges.
struct rdma_link::gather_batch {
    static constexpr std::size_t most = verbs::queue_pair::max_at_once;

    // Left uninitialised: as many as are used are written.
    std::array<mlx5::local_range, most * verbs::queue_pair::max_ranges> ranges;
    std::array<mlx5::work_request, most> requests{};
    std::size_t count = 0;
    const core::region_state* region = nullptr;  ///< of the last range
    std::uint32_t key = 0;                       ///< … its key
};

status rdma_link::deliver_gathered(const core::outgoing& message) noexcept {
    if (!goes_on_with(message)) {
        if (!queue_pair_->credits().has_room(1)) return status::again;
        forget_release(message.slot);
        if (!has_keys_of(message.ranges)) return deliver_copied(message);
        if (fits_in_one(message)) return gather_in_one(message);
        gathering_ = {true, message.slot, core::read_header(config_.send->header(message.slot)).generation, {}, 0};
    }
    const std::uint32_t before = queue_pair_->credits().posted();
    if (const status sent = post_ranges(message); sent != status::ok) return sent;
    if (gathering_.posted == message.range_bytes && queue_pair_->credits().has_room(1))
        return post_gathered_head(message);
    if (queue_pair_->credits().posted() != before) {
        queue_pair_->ring();
        remember_lent(message.slot);
    }
    return status::again;
}

bool rdma_link::goes_on_with(const core::outgoing& message) const noexcept {
    return gathering_.under_way && gathering_.slot == message.slot &&
           gathering_.generation == core::read_header(config_.send->header(message.slot)).generation;
}

/// False: some memory of the host cannot be registered.
bool rdma_link::has_keys_of(std::span<const core::lent_range> ranges) noexcept {
    const core::region_state* known = nullptr;
    return std::ranges::all_of(ranges, [&](const core::lent_range& each) {
        if (each.region == known) return true;
        known = each.region;
        return keys_of(*known, verbs::access::send) != nullptr;
    });
}

status rdma_link::deliver_copied(const core::outgoing& message) noexcept {
    std::byte* const room = config_.send->header(message.slot) + core::header_bytes;
    core::range_cursor{}.copy_out(message.ranges, room, message.range_bytes);
    core::outgoing copied = message;
    copied.payload = {room, message.range_bytes};
    copied.region = nullptr;
    copied.ranges = {};
    return deliver(copied);
}

/// Header and ranges, in one work request.
bool rdma_link::fits_in_one(const core::outgoing& message) const noexcept {
    return message.ranges.size() < queue_pair_->sizes().ranges && !peer_.apart() &&
           core::extension_room + core::header_bytes + message.range_bytes <= longest_write_;
}

status rdma_link::gather_in_one(const core::outgoing& message) noexcept {
    if (!queue_pair_->credits().has_room(1)) return status::again;
    const std::size_t extensions = put_head(message);
    std::array<mlx5::local_range, verbs::queue_pair::max_ranges> ranges;
    const std::byte* const head = config_.send->header(message.slot) - extensions;
    ranges[0] = {reinterpret_cast<std::uintptr_t>(head), static_cast<std::uint32_t>(core::header_bytes + extensions),
                 send_memory_->lkey};
    std::uint32_t count = 1;
    for (const core::lent_range& each : message.ranges) {
        const verbs::memory_keys* const keys = keys_of(*each.region, verbs::access::send);
        if (keys == nullptr) return status::again;  // it was there a moment ago
        ranges[count++] = {reinterpret_cast<std::uintptr_t>(each.data), static_cast<std::uint32_t>(each.size),
                           keys->local};
    }
    mlx5::work_request request;
    request.ranges = count;
    request.first = ranges.data();
    address_header(request, message.slot, extensions);
    if (!announces_) make_plain(request, message.slot);
    return post_message({&request, 1}, message.slot, true);
}

/// As many as there is room for. The last one asks for its completion if it is not the message's: then there is room
/// for more, and nobody reads what was lent for these.
status rdma_link::post_ranges(const core::outgoing& message) noexcept {
    const verbs::send_queue_credits& credits = queue_pair_->credits();
    gather_batch batch;
    while (gathering_.posted < message.range_bytes && credits.has_room(1)) {
        const std::size_t most = std::min<std::size_t>(credits.room(), batch.most);
        for (batch.count = 0; batch.count < most && gathering_.posted < message.range_bytes; ++batch.count)
            fill_request(message, batch);
        const auto count = static_cast<std::uint32_t>(batch.count);
        if (count == credits.room() || credits.signal_due(count))
            batch.requests[count - 1].flags = mlx5::flag_signalled;
        if (queue_pair_->append(std::span{batch.requests}.first(count)) == count) continue;
        fail(status::system_error);
        return status::peer_lost;
    }
    return status::ok;
}

/// The next ranges, as far as one work request takes them.
void rdma_link::fill_request(const core::outgoing& message, gather_batch& batch) noexcept {
    mlx5::local_range* const first = &batch.ranges[batch.count * verbs::queue_pair::max_ranges];
    mlx5::work_request& request = batch.requests[batch.count];
    request = {};
    request.first = first;
    request.remote_address = peer_payload(message.slot) + gathering_.posted;
    request.remote_key = peer_.apart() ? peer_.payloads_key : peer_.slots_key;
    std::uint64_t room = longest_write_;
    while (request.ranges < queue_pair_->sizes().ranges && room > 0 && gathering_.posted < message.range_bytes) {
        const core::region_state* const region = message.ranges[gathering_.at.index].region;
        if (region != batch.region) {
            const verbs::memory_keys* const keys = keys_of(*region, verbs::access::send);
            batch.region = region;
            batch.key = keys == nullptr ? 0 : keys->local;  // it was there before: a wrong key ends the connection
        }
        const std::span<const std::byte> piece = gathering_.at.take(message.ranges, room);
        first[request.ranges++] = {reinterpret_cast<std::uintptr_t>(piece.data()),
                                   static_cast<std::uint32_t>(piece.size()), batch.key};
        room -= piece.size();
        gathering_.posted += piece.size();
    }
}

/// The whole payload is in the send queue: the peer is told, and one doorbell rings for all that was appended.
status rdma_link::post_gathered_head(const core::outgoing& message) noexcept {
    gathering_.under_way = false;
    const std::size_t extensions = put_head(message);
    const mlx5::local_range head{reinterpret_cast<std::uintptr_t>(config_.send->header(message.slot) - extensions),
                                 static_cast<std::uint32_t>(core::header_bytes + extensions), send_memory_->lkey};
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &head;
    request.carries_bytes = fits_inline(head.length);
    address_header(request, message.slot, extensions);
    if (!announces_) make_plain(request, message.slot);
    return post_message({&request, 1}, message.slot, true);
}

}  // namespace accel::rdma
