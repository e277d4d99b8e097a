// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/log.hpp"
#include "core/net/unique_fd.hpp"
#include "core/registry.hpp"

#include <accel_transport/context.hpp>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel {
namespace core {

context_state::context_state(bool metrics)
    : metrics_(metrics ? std::make_unique<metrics_registry>() : nullptr), backends_(make_backends(*this)) {}

context_state::~context_state() {
    control_.reset();
    backends_.clear();
}

control_client& context_state::control() {
    const std::lock_guard lock(mutex_);
    if (!control_) control_ = std::make_unique<control_client>();
    return *control_;
}

backend* context_state::find_backend(std::string_view scheme) const noexcept {
    for (const auto& each : backends_)
        if (each->scheme() == scheme) return each.get();
    return nullptr;
}

result<backend*> context_state::named_backend(std::string_view scheme) const {
    backend* const found = find_backend(scheme);
    if (found == nullptr) return unknown_scheme(scheme);
    if (const std::string why = found->left_out(); !why.empty())
        return error{status::unsupported, 0, fmt::format("{}: {}", scheme, why)};
    return found;
}

namespace {

result<region> make_region(context_state& context, std::byte* data, std::size_t size, accelerator_device* on,
                           bool owned) {
    auto state = std::make_unique<region_state>(context, data, size, on, owned);
    for (const auto& each : context.backends())
        if (auto done = each->register_region(*state); !done) return done.error();
    return internals::make_region(std::move(state));
}

result<accelerator_device*> device_of(context_state& context, memory_kind kind) {
    if (kind == memory_kind::host()) return nullptr;
    return context.devices()->open(kind);
}

/// Whether a range of the host's is mapped from end to end. A look at each mapping, not at each page: since
/// Linux 2.6.19 MS_ASYNC starts no writing, and only finds holes. Where the call is forbidden, nobody knows.
bool is_mapped(void* data, std::size_t size) noexcept {
    if (size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) return false;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto before = reinterpret_cast<std::uintptr_t>(data) % page;
    return ::msync(static_cast<std::byte*>(data) - before, size + before, MS_ASYNC) == 0 || errno != ENOMEM;
}

/// An application's range, whose kind is known to be right.
result<void> check_range(void* data, std::size_t size, memory_kind kind) {
    if (kind != memory_kind::host() || is_mapped(data, size)) return {};
    return error{status::invalid_argument, 0,
                 fmt::format("cannot register {} bytes at {}: some of them are not mapped memory", size, data)};
}

result<void> check_end(const void* data, std::size_t size) {
    if (size - 1 <= std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(data)) return {};
    return error{status::invalid_argument, 0,
                 fmt::format("cannot register {} bytes at {}: they would end above the highest address", size, data)};
}

error empty_region() {
    return {status::invalid_argument, 0, "a region must have at least one byte"};
}

}  // namespace
}  // namespace core

context::context(std::shared_ptr<core::context_state> state) noexcept : state_(std::move(state)) {}
context::context(context&&) noexcept = default;
context& context::operator=(context&& other) noexcept {
    if (this == &other) return *this;
    core::leave_to_parent(state_);
    const context before{std::move(*this)};
    state_ = std::move(other.state_);
    return *this;
}
context::~context() {
    core::leave_to_parent(state_);
    if (state_ == nullptr) return;
    const core::log_registration last = state_->take_log_sink();  // gets what the state's end logs
    state_.reset();
}

result<context> context::open(const context_options& options) {
    return core::guarded([&]() -> result<context> {
        const bool filled = core::fill_standard_descriptors();
        core::log().set_level(options.log);
        core::log_registration sink{options.log_sink};
        auto state = std::make_shared<core::context_state>(options.metrics);
        state->put_log_sink(std::move(sink));
        if (!filled)
            core::log().warn("standard input, output or error is closed, and /dev/null cannot be opened in its place");
        return context{std::move(state)};
    });
}

result<region> context::allocate(std::size_t size_bytes, memory_kind kind) {
    if (core::behind(state_, "context").inherited()) return core::made_before_fork();
    if (size_bytes == 0) return core::empty_region();
    return core::guarded([&]() -> result<region> {
        auto device = core::device_of(*state_, kind);
        if (!device) return device.error();
        if (*device != nullptr) {
            auto memory = (*device)->allocate(size_bytes);
            if (!memory) return memory.error();
            return core::make_region(*state_, *memory, size_bytes, *device, true);
        }
        void* data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED)
            return error{status::out_of_memory, errno, fmt::format("cannot map {} bytes", size_bytes)};
        return core::make_region(*state_, static_cast<std::byte*>(data), size_bytes, nullptr, true);
    });
}

result<region> context::register_memory(void* data, std::size_t size_bytes, memory_kind kind) {
    if (core::behind(state_, "context").inherited()) return core::made_before_fork();
    if (size_bytes == 0) return core::empty_region();
    if (data == nullptr) return error{status::invalid_argument, 0, "cannot register a null pointer"};
    return core::guarded([&]() -> result<region> {
        if (auto good = core::check_end(data, size_bytes); !good) return good.error();
        auto device = core::device_of(*state_, kind);
        if (!device) return device.error();
        if (auto right = state_->devices()->check(data, size_bytes, kind); !right) return right.error();
        if (auto good = core::check_range(data, size_bytes, kind); !good) return good.error();
        return core::make_region(*state_, static_cast<std::byte*>(data), size_bytes, *device, false);
    });
}

std::vector<scheme_report> context::schemes() const {
    std::vector<scheme_report> reports;
    for (const auto& each : core::behind(state_, "context").backends()) {
        auto [usable, reason] =
            state_->inherited() ? core::probe_result{false, core::made_before_fork().message} : each->examine();
        reports.push_back({std::string{each->scheme()}, usable, std::move(reason)});
    }
    return reports;
}

metrics_snapshot context::metrics() const {
    const core::context_state& state = core::behind(state_, "context");
    const bool counts = state.metrics() != nullptr && !state.inherited();
    return counts ? state.metrics()->snapshot() : metrics_snapshot{};
}

}  // namespace accel
