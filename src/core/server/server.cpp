// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/server/server_core.hpp"

#include <utility>

/// The public `server`. Each call is one hop, after the checks of what the application gave.
namespace accel {
namespace {

core::server_core& server_of(const std::shared_ptr<core::server_core>& core) noexcept {
    return core::behind(core, "server");
}

/// Its last owner may be one of its handlers.
void end_server(std::shared_ptr<core::server_core> core) noexcept {
    core::leave_to_parent(core);
    if (core == nullptr) return;
    core->in_handler() ? core::server_core::stop_later(std::move(core)) : core->stop();
}

}  // namespace

server::server(std::shared_ptr<core::server_core> core) noexcept : core_(std::move(core)) {}
server::server(server&&) noexcept = default;
server& server::operator=(server&& other) noexcept {
    if (this != &other) end_server(std::exchange(core_, std::move(other.core_)));
    return *this;
}
server::~server() {
    end_server(std::move(core_));
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, handler service,
                              const server_options& options) {
    return core::guarded([&] { return listen(ctx, uris, service_table{{}, std::move(service)}, options); });
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, const service_table& services,
                              const server_options& options) {
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<server> {
        auto made =
            core::server_core::listen(core::internals::state_of(ctx), {uris.begin(), uris.end()}, services, options);
        if (!made) return made.error();
        return server{std::move(*made)};
    });
}

result<server> server::listen(context& ctx, std::string_view uri, handler service, const server_options& options) {
    return listen(ctx, std::initializer_list<std::string_view>{uri}, std::move(service), options);
}

result<server> server::listen(context& ctx, std::string_view uri, const service_table& services,
                              const server_options& options) {
    return listen(ctx, std::initializer_list<std::string_view>{uri}, services, options);
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, const service_table& services,
                              const server_options& options) {
    return core::guarded([&] {
        const std::vector<std::string> copies(uris.begin(), uris.end());
        return listen(ctx, std::span<const std::string>{copies}, services, options);
    });
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, handler service,
                              const server_options& options) {
    return core::guarded([&] {
        const std::vector<std::string> copies(uris.begin(), uris.end());
        return listen(ctx, std::span<const std::string>{copies}, std::move(service), options);
    });
}

std::vector<std::string> server::endpoints() const {
    return server_of(core_).endpoints();
}
server_statistics server::statistics() const {
    return server_of(core_).inherited() ? server_statistics{} : core_->statistics();
}
result<void> server::add_target(std::string_view name, handler service) {
    if (server_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->add_targets({{std::string{name}, std::move(service)}}); });
}
result<void> server::remove_target(std::string_view name) {
    if (server_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->remove_target(name); });
}
result<void> server::set_health(std::string_view name, health_state state) {
    if (server_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->set_health(name, state); });
}
std::size_t server::poll() noexcept {
    return server_of(core_).inherited() ? 0 : core_->poll();
}
int server::event_fd() const noexcept {
    return server_of(core_).inherited() ? -1 : core_->event_fd();
}
bool server::arm() noexcept {
    return server_of(core_).inherited() || core_->arm();
}
result<void> server::reload_keys() {
    if (server_of(core_).inherited()) return core::made_before_fork();
    return core_->reload_keys();
}
status server::drain(std::chrono::nanoseconds timeout) {
    return server_of(core_).inherited() ? status::invalid_state : core_->drain(timeout);
}
void server::stop() {
    if (server_of(core_).inherited()) return;
    core_->in_handler() ? core::server_core::stop_later(core_) : core_->stop();
}

}  // namespace accel
