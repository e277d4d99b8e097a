// SPDX-License-Identifier: Apache-2.0
#include "verbs/domain.hpp"

#include "verbs/data_direct.hpp"
#include "verbs/failure.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::verbs {
namespace {

std::uintptr_t address_of(std::span<std::byte> range) noexcept {
    return reinterpret_cast<std::uintptr_t>(range.data());
}

unsigned flags_of(access use) noexcept {
    return use == access::send ? 0U : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
}

}  // namespace

result<std::shared_ptr<domain>> domain::create(std::shared_ptr<device> on) {
    domain_handle handle(ibv_alloc_pd(&on->context()));
    if (!handle) return verb_failed("cannot make a protection domain", errno);
    return std::make_shared<domain>(std::move(on), std::move(handle));
}

domain::domain(std::shared_ptr<device> on, domain_handle handle) noexcept
    : device_(std::move(on)), handle_(std::move(handle)) {}

result<region_handle> domain::register_memory(std::span<std::byte> range, access use, core::accelerator_device* gpu) {
    if (gpu != nullptr) return register_gpu(range, use, *gpu);
    region_handle made(ibv_reg_mr(handle_.get(), range.data(), range.size(), flags_of(use)));
    if (!made) return registration_failed(range.size(), errno);
    return made;
}

region_handle domain::register_dma_buf(std::span<std::byte> range, access use, const core::dma_buf& from) noexcept {
    const unsigned flags = flags_of(use);
    if (use == access::send && has_data_direct(device_->context())) {
        region_handle made(
            register_data_direct(*handle_, from.offset, range.size(), address_of(range), from.fd, flags));
        if (made) return made;
    }
    return region_handle(ibv_reg_dmabuf_mr(handle_.get(), from.offset, range.size(), address_of(range), from.fd,
                                           static_cast<int>(flags)));
}

result<region_handle> domain::register_gpu(std::span<std::byte> range, access use, core::accelerator_device& gpu) {
    const unsigned flags = flags_of(use);
    std::string why;
    if (auto exported = gpu.export_memory(range.data(), range.size())) {
        auto made = register_dma_buf(range, use, *exported);
        const int failure = errno;
        ::close(exported->fd);
        if (made) return made;
        why =
            fmt::format("as a dma-buf: {} (needs Linux 5.12 and a driver that takes dma-bufs)", std::strerror(failure));
    } else {
        why = exported.error().message;
    }
    region_handle made(ibv_reg_mr(handle_.get(), range.data(), range.size(), flags));
    if (made) return made;
    const int failure = errno;
    return error{status::unsupported, failure,
                 fmt::format("{} bytes of {} cannot be registered; {}; as peer memory: {} (load nvidia-peermem)",
                             range.size(), gpu.name(), why, std::strerror(failure))};
}

domain::entry* domain::find(std::uintptr_t begin, std::uintptr_t end, access use) noexcept {
    const auto covers = [&](const entry& each) {
        return !each.retired && each.use == use && each.begin <= begin && end <= each.end;
    };
    const auto found = std::find_if(entries_.begin(), entries_.end(), covers);
    return found == entries_.end() ? nullptr : &*found;
}

result<domain::entry> domain::make_entry(std::uintptr_t begin, std::uintptr_t end, access use,
                                         core::accelerator_device* gpu) {
    // Ranges of unrelated memory are compared, and so kept, as numbers.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto handle = register_memory({reinterpret_cast<std::byte*>(begin), end - begin}, use, gpu);
    if (!handle) return handle.error();
    return entry{begin, end, use, false, gpu, std::move(*handle), {}};
}

result<memory_keys> domain::acquire(std::uint64_t user, std::span<std::byte> range, access use,
                                    core::accelerator_device* gpu) {
    const std::uintptr_t begin = address_of(range);
    const std::uintptr_t end = begin + range.size();
    const std::lock_guard lock(mutex_);
    entry* covering = find(begin, end, use);
    if (covering == nullptr) {
        std::uintptr_t all_begin = begin;
        std::uintptr_t all_end = end;
        for (const entry& each : entries_) {
            const bool touches = each.begin <= all_end && all_begin <= each.end;
            if (each.retired || each.use != use || each.gpu != gpu || !touches) continue;
            all_begin = std::min(all_begin, each.begin);
            all_end = std::max(all_end, each.end);
        }
        auto made = make_entry(all_begin, all_end, use, gpu);
        // Neighbours may be of different kinds, which do not register as one.
        if (!made && (all_begin != begin || all_end != end)) made = make_entry(begin, end, use, gpu);
        if (!made) return made.error();
        covering = &entries_.emplace_back(std::move(*made));
    }
    if (std::find(covering->users.begin(), covering->users.end(), user) == covering->users.end())
        covering->users.push_back(user);
    return memory_keys{covering->handle->lkey, covering->handle->rkey};
}

void domain::forget(std::uint64_t user, std::span<std::byte> range) noexcept {
    const std::uintptr_t begin = address_of(range);
    const std::uintptr_t end = begin + range.size();
    const std::lock_guard lock(mutex_);
    for (entry& each : entries_) {
        if (each.begin < end && begin < each.end) each.retired = true;
        std::erase(each.users, user);
    }
    std::erase_if(entries_, [](const entry& each) { return each.users.empty(); });
}

std::size_t domain::registrations() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
}

}  // namespace accel::verbs
