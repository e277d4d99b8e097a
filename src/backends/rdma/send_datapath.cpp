// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/link.hpp"
#include "backends/rdma/poller.hpp"
#include "core/region_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>

/// The way out: one work request a message, where it can be one.
namespace accel::rdma {
namespace {

std::uint64_t address_of(const std::byte* bytes) noexcept {
    return reinterpret_cast<std::uintptr_t>(bytes);
}

mlx5::local_range range(const std::byte* bytes, std::size_t length, std::uint32_t key) noexcept {
    return {address_of(bytes), static_cast<std::uint32_t>(length), key};
}

}  // namespace

status rdma_link::deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    const bool in_one = slots_[slot].target.length == 0 && payload.size() < plain_end_;
    if (!in_one) [[unlikely]]
        return deliver({slot, payload, nullptr, {}});
    if (state_ != state::open) [[unlikely]]
        return status::peer_lost;
    if (!queue_pair_->credits().has_room(1)) [[unlikely]]
        return status::again;
    const mlx5::local_range from =
        range(config_.send->header(slot), core::header_bytes + payload.size(), send_memory_->lkey);
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &from;
    request.carries_bytes = fits_inline(from.length);
    if (queue_pair_->credits().signal_due(1)) request.flags = mlx5::flag_signalled;
    address_header(request, slot, 0);
    if (queue_pair_->post_message(request) == status::ok) [[likely]]
        return status::ok;
    fail(status::system_error);
    return status::peer_lost;
}

/// Also lent memory, a place of its own for the answer, or a payload longer than one work request may be.
status rdma_link::deliver(const core::outgoing& message) noexcept {
    if (state_ != state::open) return status::peer_lost;
    if (!message.ranges.empty()) return deliver_gathered(message);
    slot_use& use = slots_[message.slot];
    if (is_server() && is_failure(message.slot)) use.target.length = 0;
    const std::size_t requests = requests_of(message);
    if (!queue_pair_->credits().has_room(static_cast<std::uint32_t>(requests))) return status::again;

    const source from = message.region == nullptr ? own_source(message) : lent_source(message);
    const std::size_t extensions = is_server() ? message.extension_bytes : put_head(message);
    if (requests == 1) return deliver_in_one(message.slot, from, extensions);
    return deliver_in_pieces(message.slot, from, extensions);
}

/// Client: what its request says in front of the header, and where the answer goes. Returns how many bytes of
/// extensions there are.
std::size_t rdma_link::put_head(const core::outgoing& message) noexcept {
    forget_release(message.slot);
    slot_use& use = slots_[message.slot];
    use.response_into = message.response_into.bytes();
    return use.response_into.empty() ? message.extension_bytes : write_response_target(message);
}

/// A failure carries a message for people. The message goes into the slot, not to the place that the client gave for
/// the answer, which may be on a GPU.
bool rdma_link::is_failure(std::uint32_t slot) const noexcept {
    core::slot_header header;
    core::read_header(header, config_.send->header(slot));
    return header.code != status::ok;
}

/// Header and payload arrive in one write; in the peer's slot they lie behind each other.
std::size_t rdma_link::requests_of(const core::outgoing& message) const noexcept {
    const std::uint64_t length = message.payload.size();
    const bool placed = (slots_[message.slot].target.length > 0 || peer_.apart()) && length > 0;
    if (!placed && core::extension_room + core::header_bytes + length <= longest_write_) return 1;
    return 1 + (length + longest_write_ - 1) / longest_write_;
}

status rdma_link::deliver_in_one(std::uint32_t slot, const source& from, std::size_t extensions) noexcept {
    std::byte* const first = config_.send->header(slot) - extensions;
    const std::size_t head = core::header_bytes + extensions;
    std::array<mlx5::local_range, verbs::queue_pair::max_ranges> ranges;
    ranges[0] = range(first, head + (from.behind ? from.payload.size() : 0), send_memory_->lkey);
    mlx5::work_request request;
    request.ranges = 1;
    request.first = ranges.data();
    if (!from.behind && !from.payload.empty()) {
        ranges[1] = range(from.payload.data(), from.payload.size(), from.key);
        request.ranges = 2;
    }
    request.carries_bytes = fits_inline(head + from.payload.size()) && !from.on_gpu;
    address_header(request, slot, extensions);
    if (!announces_) make_plain(request, slot);
    return post_message({&request, 1}, slot, from.lent);
}

/// A payload that goes to a place of its own, or is longer than one work request may be.
status rdma_link::deliver_in_pieces(std::uint32_t slot, const source& from, std::size_t extensions) noexcept {
    constexpr std::size_t max_at_once = 7;  // and the header
    std::array<mlx5::work_request, max_at_once + 1> requests;
    std::array<mlx5::local_range, max_at_once + 1> ranges;
    const wire::response_target& placed = slots_[slot].target;
    const bool elsewhere = placed.length > 0;
    const std::uint64_t target = elsewhere ? placed.address : peer_payload(slot);
    const std::uint32_t key = elsewhere ? placed.key : peer_.apart() ? peer_.payloads_key : peer_.slots_key;

    std::size_t count = 0;
    for (std::uint64_t offset = 0; offset < from.payload.size(); ++count) {
        if (count == max_at_once) {
            if (const status sent = post(std::span{requests}.first(count)); sent != status::ok) return sent;
            count = 0;
        }
        const std::uint64_t length = std::min(longest_write_, from.payload.size() - offset);
        ranges[count] = range(from.payload.data() + offset, length, from.key);
        mlx5::work_request& request = requests[count];
        request.ranges = 1;
        request.first = &ranges[count];
        request.remote_address = target + offset;
        request.remote_key = key;
        offset += length;
    }
    ranges[count] = range(config_.send->header(slot) - extensions, core::header_bytes + extensions, send_memory_->lkey);
    mlx5::work_request& last = requests[count];
    last.ranges = 1;
    last.first = &ranges[count];
    last.carries_bytes = fits_inline(ranges[count].length);
    address_header(last, slot, extensions);
    if (!announces_) make_plain(last, slot);
    return post_message(std::span{requests}.first(count + 1), slot, from.lent);
}

/// The peer looks at the header's last word instead (docs/protocol.md, section 7).
void rdma_link::make_plain(mlx5::work_request& request, std::uint32_t slot) const noexcept {
    auto* const header = reinterpret_cast<core::slot_header*>(config_.send->header(slot));
    header->arrival_word = header->generation;
    request.operation = mlx5::opcode::write;
}

/// Posts the requests of a message, of which the last is the header's.
status rdma_link::post_message(std::span<mlx5::work_request> requests, std::uint32_t slot, bool lent) noexcept {
    const auto count = static_cast<std::uint32_t>(requests.size());
    if (lent || queue_pair_->credits().signal_due(count)) requests.back().flags = mlx5::flag_signalled;
    if (const status sent = post(requests); sent != status::ok) return sent;
    if (lent) remember_lent(slot);
    return status::ok;
}

/// The last request posted is signalled, and reads memory lent for this slot.
void rdma_link::remember_lent(std::uint32_t slot) noexcept {
    const std::uint32_t until = queue_pair_->credits().posted();
    slots_[slot].lent = true;
    slots_[slot].lent_until = until;
    lent_.push_back({slot, until});
}

status rdma_link::post(std::span<const mlx5::work_request> requests) noexcept {
    if (queue_pair_->post(requests) == requests.size()) return status::ok;
    fail(status::system_error);
    return status::peer_lost;
}

/// An empty write that asks for its completion: it tells that everything before it has arrived.
bool rdma_link::post_marker() noexcept {
    if (!queue_pair_->credits().has_room(1)) return false;
    mlx5::work_request request;
    request.flags = mlx5::flag_signalled;
    request.remote_address = peer_.slots_address;
    request.remote_key = peer_.slots_key;
    return queue_pair_->post(std::span{&request, 1}) == 1;
}

/// A payload in its slot: behind its header, or on a GPU.
rdma_link::source rdma_link::own_source(const core::outgoing& message) const noexcept {
    const bool behind =
        !config_.send->split() || message.payload.data() == config_.send->header(message.slot) + core::header_bytes;
    if (behind) return {message.payload, send_memory_->lkey, false, true, false};
    if (message.payload.empty()) return {message.payload, send_memory_->lkey, false, false, false};
    return {message.payload, send_payloads_->lkey, false, false, true};
}

/// Lent memory, under its key. Memory of the host that cannot be registered is copied into the slot instead;
/// a GPU's has been asked for by `reaches`.
rdma_link::source rdma_link::lent_source(const core::outgoing& message) noexcept {
    if (message.payload.empty()) return {message.payload, send_memory_->lkey, true, false, false};
    const bool on_gpu = message.region->device() != nullptr;
    if (const auto* keys = keys_of(*message.region, verbs::access::send); keys != nullptr)
        return {message.payload, keys->local, true, false, on_gpu};
    std::byte* const room = config_.send->payload(message.slot);
    std::copy(message.payload.begin(), message.payload.end(), room);
    if (is_server()) push_released(message.slot);
    return {{room, message.payload.size()}, send_memory_->lkey, false, true, false};
}

bool rdma_link::reaches(const core::region_state& region, bool written) noexcept {
    return keys_of(region, written ? verbs::access::peer_writes : verbs::access::send) != nullptr;
}

/// The first use of a region registers it; all others find its keys.
const verbs::memory_keys* rdma_link::keys_of(const core::region_state& region, verbs::access use) noexcept {
    if (const auto* known = keys_.find(region.id(), use); known != nullptr) return known;
    return acquire_keys(region, use);
}

/// Client: tells the server where the answer goes, in front of the core's extensions. Returns how many bytes of
/// extensions there are.
std::size_t rdma_link::write_response_target(const core::outgoing& message) noexcept {
    slot_use& use = slots_[message.slot];
    const auto* keys = keys_of(*message.response_into.region(), verbs::access::peer_writes);
    use.copies_response = keys == nullptr;
    if (keys == nullptr) return message.extension_bytes;
    wire::response_target_extension extension;
    extension.value.address = address_of(use.response_into.data());
    extension.value.length = use.response_into.size();
    extension.value.key = keys->remote;
    std::byte* const header = config_.send->header(message.slot);
    const std::size_t bytes = sizeof extension + message.extension_bytes;
    std::memcpy(header - bytes, &extension, sizeof extension);
    reinterpret_cast<core::slot_header*>(header)->extension_bytes = static_cast<std::uint16_t>(bytes);
    return bytes;
}

bool rdma_link::retract(std::uint32_t slot) noexcept {
    slot_use& use = slots_[slot];
    if (gathering_.slot == slot) gathering_.under_way = false;
    // Only the late answer tells that the server no longer writes there.
    if (!use.response_into.empty() && !use.copies_response) return false;
    use.response_into = {};
    use.release_owed = use.lent;
    return !use.lent;
}

/// Sends have completed: some memory that was lent for them is no longer read. A slot may have been used anew.
void rdma_link::settle_lent() noexcept {
    const std::uint32_t completed = queue_pair_->credits().completed();
    const auto is_sent = [completed](const lent_message& each) {
        return static_cast<std::int32_t>(completed - each.until) >= 0;
    };
    const auto waiting = std::find_if_not(lent_.begin(), lent_.end(), is_sent);
    for (auto each = lent_.begin(); each != waiting; ++each) {
        slot_use& use = slots_[each->slot];
        if (!use.lent || use.lent_until != each->until) continue;
        use.lent = false;
        if (is_server() || use.release_owed) push_released(each->slot);
        use.release_owed = false;
    }
    lent_.erase(lent_.begin(), waiting);
}

/// Client: the call that waited for the release has its answer. A late release would be taken for that of the
/// next call in this slot.
void rdma_link::forget_release(std::uint32_t slot) noexcept {
    slots_[slot].release_owed = false;
    std::erase(released_, slot);
}

void rdma_link::push_released(std::uint32_t slot) noexcept {
    if (released_.size() == released_.capacity()) return;  // each slot once: cannot be
    released_.push_back(slot);
    poller_.mark_pending(*this);
}

}  // namespace accel::rdma
