// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/gpu_copies.hpp"

#include "core/log.hpp"
#include "core/region_state.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace accel::shm {
namespace {

/// Shorter requests in memory of the host go over the host: the launch of a copy, and the look at its end, would cost
/// more than the server's GPU needs to fetch them.
constexpr std::size_t min_from_host = std::size_t{64} << 10;
/// How many ranges of a list make one piece of a copy at most.
constexpr unsigned ranges_of_a_piece = 64;

}  // namespace

gpu_copies::gpu_copies(core::accelerator_device& gpu, const core::link_geometry& geometry)
    : gpu_(gpu),
      request_stride_(core::slot_memory::device_stride(geometry.request_bytes)),
      response_stride_(core::slot_memory::device_stride(geometry.response_bytes)),
      copies_(geometry.slots) {
    for (std::uint32_t i = 0; i < geometry.slots; ++i) copies_[i].slot = i;
    listed_.reserve(geometry.slots);
}

gpu_copies::~gpu_copies() {
    copies_.clear();
    if (requests_ != nullptr) gpu_.release(requests_);
    if (responses_ != nullptr) gpu_.release(responses_);
}

/// No sizes are told: both ends compute them, and the driver maps no more than there is.
result<void> gpu_copies::map_slots(const passed_descriptors& passed, const core::link_geometry& geometry,
                                   core::shared_of whose) {
    auto requests = gpu_.map_shared(passed[gpu_requests].get(), geometry.slots * request_stride_, whose);
    if (!requests) return requests.error();
    requests_ = *requests;
    auto responses = gpu_.map_shared(passed[gpu_responses].get(), geometry.slots * response_stride_, whose);
    if (!responses) return responses.error();
    responses_ = *responses;
    return {};
}

result<std::unique_ptr<gpu_copies>> gpu_copies::map(const std::shared_ptr<core::accelerator>& gpus,
                                                    const passed_descriptors& passed,
                                                    const core::link_geometry& geometry, core::slot_memory& own) {
    std::string why = "this context uses no GPU";
    for (const core::shared_of whose : {core::shared_of::device, core::shared_of::peers}) {
        for (core::accelerator_device* each : gpus->opened()) {
            std::unique_ptr<gpu_copies> made(new gpu_copies(*each, geometry));
            if (auto mapped = made->map_slots(passed, geometry, whose); !mapped) {
                why = mapped.error().message;
                continue;
            }
            const auto pinned = own.pin(gpus);
            if (!pinned) core::log().warn("shm: large requests go over the host: {}", pinned.error().message);
            made->own_pinned_ = pinned.ok();
            return made;
        }
    }
    return error{status::unsupported, 0, std::move(why)};
}

bool gpu_copies::reaches(const core::region_state& region) const noexcept {
    return region.device() == nullptr || region.device() == &gpu_;
}

bool gpu_copies::takes(const core::outgoing& message) const noexcept {
    const auto on_gpu = [](const core::lent_range& each) { return each.region->device() != nullptr; };
    if (!message.ranges.empty()) return std::ranges::any_of(message.ranges, on_gpu);
    if (message.payload.empty()) return false;
    if (message.region != nullptr) return message.region->device() != nullptr;
    return own_pinned_ && message.payload.size() >= min_from_host;
}

status gpu_copies::send(const core::outgoing& message, std::uint32_t entry) noexcept {
    copy& made = copies_[message.slot];
    std::byte* const to = requests_ + message.slot * request_stride_;
    made.request = true;
    made.entry = entry;
    made.ranges = message.ranges;
    made.at = {};
    made.to = to;
    made.left = message.range_bytes;
    made.whole = {to, message.payload.data(), message.payload.size()};
    return start(made);
}

status gpu_copies::receive(const core::link_event& arrived) noexcept {
    copy& made = copies_[arrived.header.slot];
    made.request = false;
    made.response = arrived;
    made.ranges = {};
    const std::span<std::byte> from = response(made.slot, arrived.payload.size());
    made.whole = {arrived.payload.data(), from.data(), from.size()};
    return start(made);
}

status gpu_copies::start(copy& made) noexcept {
    if (!gpu_.alive()) return status::device_lost;
    if (made.stream == nullptr) {
        auto opened = gpu_.open_stream(stream_priority::normal);
        if (!opened) return opened.code();
        made.stream = std::move(*opened);
    }
    made.fed = made.told = made.wanted_back = false;
    made.stream->begin();
    feed(made);
    made.listed = true;
    listed_.push_back(made.slot);
    return status::ok;
}

void gpu_copies::feed(copy& each) noexcept {
    each.fed = each.ranges.empty() ? each.whole.feed(*each.stream) : feed_ranges(each);
    if (each.fed) each.stream->finish(nullptr, nullptr);
}

/// As `long_copy::feed`, of many ranges.
bool gpu_copies::feed_ranges(copy& each) noexcept {
    core::device_stream& stream = *each.stream;
    for (unsigned under_way = stream.pieces_under_way(); under_way < core::device_stream::max_pieces; ++under_way) {
        std::size_t room = core::device_stream::piece_bytes;
        for (unsigned i = 1; each.left > 0; ++i) {
            const std::span<std::byte> from = each.at.take(each.ranges, room);
            room -= from.size();
            std::byte* const to = std::exchange(each.to, each.to + from.size());
            each.left -= from.size();
            const bool ends_piece = room == 0 || i == ranges_of_a_piece || each.left == 0;
            if (!ends_piece) {
                stream.copy(to, from.data(), from.size());
                continue;
            }
            stream.copy_piece(to, from.data(), from.size());
            break;
        }
        if (each.left == 0) return true;
    }
    return false;
}

core::stream_progress gpu_copies::go_on(copy& each) noexcept {
    if (!each.fed) feed(each);
    return each.fed ? each.stream->poll() : core::stream_progress::running;
}

bool gpu_copies::receives() const noexcept {
    return std::ranges::any_of(listed_, [this](std::uint32_t slot) { return !copies_[slot].request; });
}

bool gpu_copies::abandon(std::uint32_t slot) noexcept {
    copies_[slot].wanted_back = true;
    return copies_[slot].listed;
}

bool gpu_copies::settle() noexcept {
    std::erase_if(listed_, [this](std::uint32_t slot) {
        copy& each = copies_[slot];
        const bool runs =
            each.fed ? each.stream->poll() == core::stream_progress::running : each.stream->pieces_under_way() > 0;
        each.listed = runs;
        return !runs;
    });
    return listed_.empty();
}

bool gpu_copies::wakes(core::stream_waker& waker) noexcept {
    return std::ranges::all_of(listed_, [&](std::uint32_t slot) {
        copy& each = copies_[slot];
        if (each.told) return true;
        if (!each.fed) return false;
        each.told = gpu_.when_ended(each.stream->native(), &core::stream_waker::wake, &waker).ok();
        return each.told;
    });
}

}  // namespace accel::shm
