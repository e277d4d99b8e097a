// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.hpp"

#include "dma/guarded.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::softnic::memory {
namespace {

constexpr std::uint64_t longest_posting_ns = 200'000;

/// Calls move(segment, offset in segment, part of bytes) for each piece of [offset, offset + bytes.size()).
template <class Byte, class Move>
vendor_syndrome walk(std::span<const segment> segments, std::uint64_t offset, std::span<Byte> bytes, Move move) {
    for (const segment& piece : segments) {
        if (bytes.empty()) break;
        if (offset >= piece.length) {
            offset -= piece.length;
            continue;
        }
        const std::size_t size = std::min<std::size_t>(piece.length - offset, bytes.size());
        const vendor_syndrome problem = move(piece, offset, bytes.first(size));
        if (problem != vendor_syndrome::none) return problem;
        bytes = bytes.subspan(size);
        offset = 0;
    }
    return bytes.empty() ? vendor_syndrome::none : vendor_syndrome::local_length;
}

}  // namespace

vendor_syndrome gather(hca& nic, const queue_pair& qp, std::span<const segment> segments,
                       std::span<const std::byte> inlined, std::uint64_t message, std::uint64_t offset,
                       std::span<std::byte> to) {
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    return walk(segments, offset, to, [&](const segment& piece, std::uint64_t at, std::span<std::byte> part) {
        if (piece.inlined) {
            std::memcpy(part.data(), inlined.data() + piece.address + at, part.size());
            return vendor_syndrome::none;
        }
        const std::uint64_t address = piece.address + at;
        const auto found = regions.check(piece.lkey, user_of(qp), address, part.size(), 0);
        if (found.status != access_check::ok) return vendor_syndrome::local_key;
        const bool done = read(*found.region, address, part, message, piece.length - at - part.size());
        return done ? vendor_syndrome::none : vendor_syndrome::memory_fault;
    });
}

/// What follows is looked at when its turn comes: until then only the region bounds it.
bool read(memory_region& region, std::uint64_t address, std::span<std::byte> to, std::uint64_t message,
          std::uint64_t left) {
    const std::uint64_t from = region.engine_address(address);
    if (message == alone) return region.engine->read(to.data(), from, to.size());
    const std::uint64_t rest = region.iova + region.length - address - to.size();
    return region.engine->read_part(to.data(), from, to.size(), message, std::min(left, rest));
}

/// At most two pages: looking at both ends looks at all of them.
const std::byte* locate(memory_region& region, std::uint64_t address, std::size_t size_bytes) {
    static_assert(max_mtu <= 4096);
    const std::byte* at = region.engine->host_view(region.engine_address(address), size_bytes);
    std::byte probe{};
    const bool mapped = at != nullptr && guarded::copy(&probe, at, 1) && guarded::copy(&probe, at + size_bytes - 1, 1);
    return mapped ? at : nullptr;
}

const std::byte* locate(hca& nic, const queue_pair& qp, std::span<const segment> segments, std::uint64_t offset,
                        std::size_t size_bytes) {
    const segment* piece = find_piece(segments, offset, size_bytes);
    if (piece == nullptr) return nullptr;
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    const auto found = regions.check(piece->lkey, user_of(qp), piece->address + offset, size_bytes, 0);
    return found.status == access_check::ok ? locate(*found.region, piece->address + offset, size_bytes) : nullptr;
}

const segment* find_piece(std::span<const segment> segments, std::uint64_t& offset, std::size_t size_bytes) {
    for (const segment& piece : segments) {
        if (offset < piece.length) return piece.inlined || piece.length - offset < size_bytes ? nullptr : &piece;
        offset -= piece.length;
    }
    return nullptr;
}

void note_early(hca& nic, const std::shared_ptr<dma_engine>& engine, std::uint64_t mark) {
    nic.defers = true;
    const auto same = [&](const auto& each) { return each.engine == engine; };
    const auto found = std::find_if(nic.early.begin(), nic.early.end(), same);
    if (found != nic.early.end())
        found->mark = mark;
    else
        nic.early.push_back({engine, mark});
}

void note_deferring(hca& nic, const std::shared_ptr<dma_engine>& engine) {
    nic.defers = true;
    if (std::find(nic.deferring.begin(), nic.deferring.end(), engine) == nic.deferring.end())
        nic.deferring.push_back(engine);
}

vendor_syndrome scatter(hca& nic, queue_pair& qp, std::span<const segment> segments, std::uint64_t offset,
                        std::span<const std::byte> from) {
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    return walk(segments, offset, from, [&](const segment& piece, std::uint64_t at, std::span<const std::byte> part) {
        const std::uint64_t address = piece.address + at;
        const auto found = regions.check(piece.lkey, user_of(qp), address, part.size(), access::local_write);
        if (piece.inlined || found.status != access_check::ok) return vendor_syndrome::local_key;
        return place(nic, qp, *found.region, address, part) ? vendor_syndrome::none : vendor_syndrome::memory_fault;
    });
}

namespace {

bool write(hca& nic, memory_region& region, std::uint64_t address, std::span<const std::byte> from) {
    if (!region.engine->write(region.engine_address(address), from.data(), from.size())) return false;
    if (region.engine->defers()) note_deferring(nic, region.engine);
    return true;
}

/// False: not now.
bool begin(hca& nic, memory_region& region, const posted_write& item, std::shared_ptr<dma_engine>& on_its_way) {
    if (!region.engine->defers()) {
        static_cast<void>(write(nic, region, item.address, item.bytes));
        return true;
    }
    std::uint64_t mark = 0;
    const std::uint64_t to = region.engine_address(item.address);
    const write_start begun =
        region.engine->write_early(to, item.bytes.data(), item.bytes.size(), write_order::behind, mark);
    if (begun == write_start::begun) note_early(nic, region.engine, mark);
    if (begun == write_start::refused) static_cast<void>(write(nic, region, item.address, item.bytes));
    if (begun == write_start::later) return false;
    if (on_its_way != nullptr && !region.engine->keeps_order_with(*on_its_way)) note_deferring(nic, on_its_way);
    on_its_way = region.engine;
    return true;
}

/// These bytes have gone there, by this engine, ahead of their packet.
bool is_placed(const hca& nic, const memory_region& region, std::uint64_t address) {
    return nic.placed != nullptr && nic.placed->engine == region.engine &&
           nic.placed->address == region.engine_address(address);
}

}  // namespace

bool place(hca& nic, queue_pair& qp, memory_region& region, std::uint64_t address, std::span<const std::byte> from) {
    if (is_placed(nic, region, address)) return true;
    if (!nic.config.strict) return write(nic, region, address, from);
    auto& responder = qp.responder;
    responder.posted.push_back({region.key, address, {from.begin(), from.end()}});
    if (responder.post_by == 0) responder.post_by = nic.now + nic.random() % longest_posting_ns;
    nic.schedule(qp);
    return true;
}

void write_posted(hca& nic, queue_pair& qp) {
    auto& responder = qp.responder;
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    const auto taken = [&](const posted_write& item) {
        memory_region* region = regions.find(item.key);
        return region == nullptr || begin(nic, *region, item, responder.posting);
    };
    const auto rest = std::find_if_not(responder.posted.begin(), responder.posted.end(), taken);
    responder.posted.erase(responder.posted.begin(), rest);
    if (responder.posted.empty()) responder.post_by = 0;
}

void flush_posted(hca& nic, queue_pair& qp) {
    auto& responder = qp.responder;
    if (responder.posted.empty() && responder.posting == nullptr) return;
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    for (const posted_write& item : responder.posted) {
        memory_region* region = regions.find(item.key);
        if (region == nullptr) continue;  // deregistered meanwhile: too late for an error, as on hardware
        if (!write(nic, *region, item.address, item.bytes))
            nic.say(qp, "posted", "memory fault at {:#x}", item.address);
    }
    responder.posted.clear();
    responder.post_by = 0;
    if (responder.posting != nullptr) note_deferring(nic, std::exchange(responder.posting, nullptr));
    if (!settle(nic)) nic.say(qp, "posted", "memory fault");
}

bool settle(hca& nic) {
    bool arrived = true;
    for (const auto& engine : nic.deferring) arrived &= engine->flush();
    nic.deferring.clear();
    return arrived;
}

void drain(hca& nic, queue_pair& qp) {
    flush_posted(nic, qp);
    for (const auto& each : nic.early) note_deferring(nic, each.engine);
    static_cast<void>(settle(nic));
}

void quiesce(hca& nic, const memory_region& region) {
    static_cast<void>(region.engine->flush());
    std::erase(nic.deferring, region.engine);
    std::erase_if(nic.early, [&](const auto& each) { return each.engine == region.engine; });
}

}  // namespace accel::softnic::memory
