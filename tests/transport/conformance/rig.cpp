// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

#include "handler_memory.hpp"
#include "security_way.hpp"
#include "verbs_way.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace accel::tests {

server_options calm_server() {
    server_options options;
    options.peer_timeout = patience(5s);
    options.security = usual_security(true);
    options.verbs.direct = drives_directly();
    prepare(options);
    return options;
}

channel_options calm_client() {
    channel_options options;
    options.connect_timeout = patience(10s);
    options.call_timeout = patience(20s);
    options.peer_timeout = patience(5s);
    options.request_bytes = 64 << 10;
    options.response_bytes = 64 << 10;
    options.security = usual_security(false);
    options.verbs.direct = drives_directly();
    return options;
}

context quiet_context(bool metrics) {
    result<context> opened = context::open({.log = log_level::off, .metrics = metrics});
    if (!opened) throw std::runtime_error("context: " + opened.error().message);
    prepare(*opened);
    return std::move(opened).value();
}

void echo(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    copy(one.response(), one.request().first(length));
    (void)one.reply(length);
}

std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count - 1;  // the directory's own
}

rig::rig(const backend_case& backend, handler service, const server_options& options, const std::string& query)
    : context_(quiet_context()) {
    const std::string listen_uri = backend.listen_uri() + query;
    result<server> listening = server::listen(context_, listen_uri, std::move(service), options);
    if (!listening) throw std::runtime_error("listen on " + listen_uri + ": " + listening.error().message);
    server_ = std::make_unique<server>(std::move(listening).value());
    uri_ = server_->endpoints().at(0);
}

result<channel> rig::try_connect(const channel_options& options) {
    return channel::connect(context_, uri_, options);
}

checked_channel rig::connect(const channel_options& options) {
    result<channel> connected = try_connect(options);
    if (!connected) throw std::runtime_error("connect to " + uri_ + ": " + connected.error().message);
    return checked_channel(std::move(connected).value());
}

}  // namespace accel::tests
