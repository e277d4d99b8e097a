#include "core/region_state.hpp"
#include "verbs/link.hpp"
#include "verbs/poller.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <arpa/inet.h>

/// The way out: one work request a message, where it can be one.
namespace accel::verbs {
namespace {

/// Id of a work request: this bit for every send (receives have 0), the next for one that reads lent memory,
/// then the slot and the number of the request.
constexpr std::uint64_t send_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t lent_bit = std::uint64_t{1} << 62;

constexpr std::uint64_t make_id(std::uint32_t number, std::uint32_t slot, bool lent) noexcept {
    return send_bit | (lent ? lent_bit : 0) | (std::uint64_t{slot} << 32) | number;
}
constexpr std::uint32_t slot_of(std::uint64_t id) noexcept {
    return static_cast<std::uint32_t>(id >> 32) & (core::max_slots - 1);
}

std::uint64_t address_of(const std::byte* bytes) noexcept {
    return reinterpret_cast<std::uintptr_t>(bytes);
}

ibv_sge segment(const std::byte* bytes, std::size_t length, std::uint32_t key) noexcept {
    return {address_of(bytes), static_cast<std::uint32_t>(length), key};
}

}  // namespace

status rdma_link::deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    const bool in_one = slots_[slot].target.length == 0 && payload.size() <= longest_plain_;
    if (!in_one) [[unlikely]]
        return deliver({slot, payload, nullptr, {}});
    if (state_ != state::open) [[unlikely]]
        return status::peer_lost;
    if (!ledger_.has_room(1)) [[unlikely]]
        return status::again;
    plain_.segment.addr = address_of(config_.send->header(slot));
    plain_.segment.length = static_cast<std::uint32_t>(core::header_bytes + payload.size());
    ibv_send_wr& request = plain_.request;
    request.send_flags = plain_.segment.length <= queue_pair_->sizes().inline_bytes ? IBV_SEND_INLINE : 0;
    request.imm_data = htonl(slot);
    request.wr.rdma.remote_addr = peer_header(slot);
    return post(&request, request, 1, slot, false);
}

/// Also lent memory, a place of its own for the answer, or a payload longer than one work request may be.
status rdma_link::deliver(const core::outgoing& message) noexcept {
    if (state_ != state::open) return status::peer_lost;
    slot_use& use = slots_[message.slot];
    if (is_server() && is_failure(message.slot)) use.target.length = 0;
    const std::size_t requests = requests_of(message);
    if (!ledger_.has_room(static_cast<std::uint32_t>(requests))) return status::again;

    const source from = message.region == nullptr ? own_source(message) : lent_source(message);
    std::size_t extensions = 0;
    if (!is_server()) {
        forget_let_go(message.slot);
        use.response_into = message.response_into.bytes();
        if (!use.response_into.empty()) extensions = write_response_target(message);
    }
    if (requests == 1) return deliver_in_one(message.slot, from, extensions);
    return deliver_in_pieces(message.slot, from, extensions);
}

/// Why a call failed is for people: it goes into the slot, not where the answer was wanted, on a GPU perhaps.
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
    std::array<ibv_sge, 2> segments;
    segments[0] = segment(first, head + (from.behind ? from.payload.size() : 0), send_memory_->lkey);
    int count = 1;
    if (!from.behind && !from.payload.empty()) {
        segments[1] = segment(from.payload.data(), from.payload.size(), from.key);
        count = 2;
    }
    ibv_send_wr request;
    request.next = nullptr;
    request.sg_list = segments.data();
    request.num_sge = count;
    const bool carried = head + from.payload.size() <= queue_pair_->sizes().inline_bytes && !from.on_gpu;
    request.send_flags = carried ? IBV_SEND_INLINE : 0;
    address_header(request, slot, extensions);
    return post(&request, request, 1, slot, from.lent);
}

/// A payload that goes to a place of its own, or is longer than one work request may be.
status rdma_link::deliver_in_pieces(std::uint32_t slot, const source& from, std::size_t extensions) noexcept {
    constexpr std::size_t most_at_once = 16;
    std::array<ibv_send_wr, most_at_once> requests;
    std::array<ibv_sge, most_at_once> segments;
    const verbs::response_target& placed = slots_[slot].target;
    const bool elsewhere = placed.length > 0;
    const std::uint64_t target = elsewhere ? placed.address : peer_payload(slot);
    const std::uint32_t key = elsewhere ? placed.key : peer_.apart() ? peer_.payloads_key : peer_.slots_key;

    std::size_t count = 0;
    for (std::uint64_t offset = 0; offset < from.payload.size(); ++count) {
        if (count == most_at_once) {
            requests[count - 1].next = nullptr;
            const auto posted = static_cast<std::uint32_t>(count);
            if (const status sent = post(requests.data(), posted, false); sent != status::ok) return sent;
            count = 0;
        }
        const std::uint64_t length = std::min(longest_write_, from.payload.size() - offset);
        segments[count] = segment(from.payload.data() + offset, length, from.key);
        ibv_send_wr& request = requests[count];
        request.wr_id = send_bit;
        request.next = &requests[count] + 1;
        request.sg_list = &segments[count];
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = 0;
        request.wr.rdma.remote_addr = target + offset;
        request.wr.rdma.rkey = key;
        offset += length;
    }
    ibv_sge head =
        segment(config_.send->header(slot) - extensions, core::header_bytes + extensions, send_memory_->lkey);
    ibv_send_wr last;
    last.next = nullptr;
    last.sg_list = &head;
    last.num_sge = 1;
    last.send_flags = head.length <= queue_pair_->sizes().inline_bytes ? IBV_SEND_INLINE : 0;
    address_header(last, slot, extensions);
    if (count > 0) requests[count - 1].next = &last;
    return post(count > 0 ? requests.data() : &last, last, static_cast<std::uint32_t>(count + 1), slot,
                from.lent);
}

/// The write that the peer is told of: by its immediate data, the slot's number.
void rdma_link::address_header(ibv_send_wr& request, std::uint32_t slot,
                               std::size_t extensions) const noexcept {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(slot);
    request.wr.rdma.remote_addr = peer_header(slot) - extensions;
    request.wr.rdma.rkey = peer_.slots_key;
}

/// Posts `count` requests that end with the one of the header.
inline status rdma_link::post(ibv_send_wr* chain, ibv_send_wr& last, std::uint32_t count, std::uint32_t slot,
                              bool lent) noexcept {
    const bool signalled = lent || ledger_.signal_due(count);
    const std::uint32_t number = ledger_.number_of_last(count);
    last.wr_id = make_id(number, slot, lent);
    if (signalled) last.send_flags |= IBV_SEND_SIGNALED;
    if (lent) {
        slots_[slot].lent = true;
        slots_[slot].lent_until = number;
    }
    return post(chain, count, signalled);
}

inline status rdma_link::post(ibv_send_wr* chain, std::uint32_t count, bool signalled) noexcept {
    ibv_send_wr* failed = nullptr;
    if (queue_pair_->post(chain, &failed) != 0) [[unlikely]] {
        fail(status::system_error);
        return status::peer_lost;
    }
    ledger_.post(count, signalled);
    return status::ok;
}

/// An empty write that asks for its completion: it tells that everything before it has arrived.
bool rdma_link::post_marker() noexcept {
    if (!ledger_.has_room(1)) return false;
    ibv_send_wr request{};
    request.wr_id = make_id(ledger_.number_of_last(1), 0, false);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = peer_.slots_address;
    request.wr.rdma.rkey = peer_.slots_key;
    ibv_send_wr* failed = nullptr;
    if (queue_pair_->post(&request, &failed) != 0) return false;
    ledger_.post(1, true);
    return true;
}

/// A payload in its slot: behind its header, or on a GPU.
rdma_link::source rdma_link::own_source(const core::outgoing& message) const noexcept {
    const bool behind = !config_.send->split() ||
                        message.payload.data() == config_.send->header(message.slot) + core::header_bytes;
    if (behind) return {message.payload, send_memory_->lkey, false, true, false};
    if (message.payload.empty()) return {message.payload, send_memory_->lkey, false, false, false};
    return {message.payload, send_payloads_->lkey, false, false, true};
}

/// Lent memory, under its key. Memory of the host that cannot be registered is copied into the slot instead;
/// a GPU's has been asked for by `reaches`.
rdma_link::source rdma_link::lent_source(const core::outgoing& message) noexcept {
    if (message.payload.empty()) return {message.payload, send_memory_->lkey, true, false, false};
    const bool on_gpu = message.region->gpu() != nullptr;
    if (const auto* keys = keys_of(*message.region, access::send); keys != nullptr) {
        return {message.payload, keys->local, true, false, on_gpu};
    }
    std::byte* const room = config_.send->payload(message.slot);
    std::copy(message.payload.begin(), message.payload.end(), room);
    if (is_server()) push_released(message.slot);
    return {{room, message.payload.size()}, send_memory_->lkey, false, true, false};
}

bool rdma_link::reaches(const core::region_state& region, bool written) noexcept {
    return keys_of(region, written ? access::peer_writes : access::send) != nullptr;
}

/// The first use of a region registers it; all others find its keys.
const memory_keys* rdma_link::keys_of(const core::region_state& region, access use) noexcept {
    if (const auto* known = keys_.find(region.id(), use); known != nullptr) return known;
    return acquire_keys(region, use);
}

/// Client: tells the server where the answer goes. Returns how many bytes of extensions there are.
std::size_t rdma_link::write_response_target(const core::outgoing& message) noexcept {
    slot_use& use = slots_[message.slot];
    const auto* keys = keys_of(*message.response_into.region(), access::peer_writes);
    use.copies_response = keys == nullptr;
    if (keys == nullptr) return 0;
    response_target_extension extension;
    extension.value.address = address_of(use.response_into.data());
    extension.value.length = use.response_into.size();
    extension.value.key = keys->remote;
    std::byte* const header = config_.send->header(message.slot);
    std::memcpy(header - sizeof extension, &extension, sizeof extension);
    reinterpret_cast<core::slot_header*>(header)->extension_bytes = sizeof extension;
    return sizeof extension;
}

bool rdma_link::retract(std::uint32_t slot) noexcept {
    slot_use& use = slots_[slot];
    // Only the late answer tells that the server no longer writes there.
    if (!use.response_into.empty() && !use.copies_response) return false;
    use.response_into = {};
    use.release_owed = use.lent;
    return !use.lent;
}

void rdma_link::on_sent(std::uint64_t id) noexcept {
    const auto number = static_cast<std::uint32_t>(id);
    ledger_.complete(number);
    if ((id & lent_bit) == 0) return;
    slot_use& use = slots_[slot_of(id)];
    if (!use.lent || use.lent_until != number) return;
    use.lent = false;
    if (is_server() || use.release_owed) push_released(slot_of(id));
    use.release_owed = false;
}

/// Client: the call that waited for it has had its answer, and the next one in this slot would be taken to be
/// let go of.
void rdma_link::forget_let_go(std::uint32_t slot) noexcept {
    slots_[slot].release_owed = false;
    std::erase(released_, slot);
}

void rdma_link::push_released(std::uint32_t slot) noexcept {
    if (released_.size() == released_.capacity()) return;  // each slot once: cannot be
    released_.push_back(slot);
    poller_.mark_pending(*this);
}

}  // namespace accel::verbs
