// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/handle.hpp"
#include "core/server/server_core.hpp"

#include <accel_transport/server.hpp>

#include <utility>

/// The public face of a server: each call is one hop into `server_core`.
namespace accel {
namespace {

core::server_core& behind(const std::shared_ptr<core::server_core>& core) noexcept {
    return core::behind(core, "server");
}

}  // namespace

server::server(std::shared_ptr<core::server_core> core) noexcept : core_(std::move(core)) {}
server::server(server&&) noexcept = default;
server& server::operator=(server&& other) noexcept {
    core::leave_to_parent(core_);
    core_ = std::move(other.core_);
    return *this;
}
server::~server() {
    core::leave_to_parent(core_);
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, handler service,
                              const server_options& options) {
    return listen(ctx, uris, service_table{{}, std::move(service)}, options);
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, const service_table& services,
                              const server_options& options) {
    if (core::behind(ctx.state(), "context").inherited()) return core::made_before_fork();
    auto made = core::server_core::listen(ctx.state(), {uris.begin(), uris.end()}, services, options);
    if (!made) return made.error();
    return server{std::move(*made)};
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, const service_table& services,
                              const server_options& options) {
    const std::vector<std::string> copies(uris.begin(), uris.end());
    return listen(ctx, std::span<const std::string>{copies}, services, options);
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, handler service,
                              const server_options& options) {
    const std::vector<std::string> copies(uris.begin(), uris.end());
    return listen(ctx, std::span<const std::string>{copies}, std::move(service), options);
}

std::vector<std::string> server::endpoints() const {
    return behind(core_).endpoints();
}
server_statistics server::statistics() const {
    return behind(core_).inherited() ? server_statistics{} : core_->statistics();
}
std::size_t server::poll() noexcept {
    return behind(core_).inherited() ? 0 : core_->poll();
}
result<void> server::reload_keys() {
    if (behind(core_).inherited()) return core::made_before_fork();
    return core_->reload_keys();
}
status server::drain(std::chrono::nanoseconds timeout) {
    return behind(core_).inherited() ? status::invalid_state : core_->drain(timeout);
}
void server::stop() {
    if (!behind(core_).inherited()) core_->stop();
}

}  // namespace accel
