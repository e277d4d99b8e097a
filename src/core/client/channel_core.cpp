// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"

#include "core/client/connect_attempts.hpp"
#include "core/context_state.hpp"

#include <algorithm>
#include <utility>

/// A channel's control path.
namespace accel::core {

result<channel_owner> channel_core::connect(std::shared_ptr<context_state> context, std::string_view text,
                                            const channel_options& options) {
    auto hosts = parse_client_uris(text);
    if (!hosts) return hosts.error();
    return connect(std::move(context), std::move(*hosts), options);
}

result<channel_owner> channel_core::connect(std::shared_ptr<context_state> context, std::vector<uri> hosts,
                                            const channel_options& options, const std::stop_token& stopped) {
    using made = channel_owner;
    const auto connect = [&](const connect_attempts& now) -> result<made> {
        auto request = prepare_connection(context, now.host(), options, now.time(), stopped);
        if (!request) return request.error();
        auto connection = open_by_any_scheme(*request);
        if (!connection) return connection.error();
        connect_request kept;  // as far as the end of a session needs it
        kept.context = context;
        kept.security = request->security;
        const client_session session = connection->session;
        try {
            now.restore(*request);
            channel_owner core{new channel_core(std::move(*request), std::move(*connection))};
            if (auto good = core->wakeups_.check(); !good) return good.error();
            return core;
        } catch (...) {
            close_session(kept, session);
            throw;
        }
    };
    return connect_to_any<made>(std::move(hosts), options, connect, nullptr, stopped);
}

channel_core::channel_core(connect_request request, channel_connection made)
    : request_(std::move(request)),
      life_(request_, std::move(made), wakeups_),
      slots_(request_.options.slots),
      backlog_(slots_.count()),
      staging_(request_, slots_, wakeups_),
      parts_(slots_, backlog_, life_, request_.options.response_bytes),
      request_parts_(slots_, backlog_, life_),
      gathered_(slots_.count()),
      scattered_(slots_.count()),
      replaceable_(request_.options.reconnect),
      intercepted_(!request_.options.interceptors.empty()),
      number_(intercepted_ ? next_number() : 0),
      spinner_(request_.options.poll) {
    for (channel_slot& slot : slots_.all()) slot.header = request_.requests->header(slot.content.id.slot);
    if (request_.context != nullptr && request_.context->metrics() != nullptr) {
        const backend* const scheme = request_.context->find_backend(request_.peer.scheme);
        metrics_ =
            std::make_unique<client_metrics>(*request_.context->metrics(), scheme->scheme(), submitted_, quarantined_);
    }
}

namespace {

error cannot_ask(status why) {
    return {why, 0, "the channel has lost its server, or the server is stopping"};
}

}  // namespace

result<std::vector<std::string>> channel_core::targets() const {
    if (!life_.connected()) return cannot_ask(life_.why_unusable());
    return ask_for_targets(request_);
}

result<health_state> channel_core::health(std::string_view name) const {
    if (life_.leaving()) return health_state::not_serving;
    if (!life_.connected()) return cannot_ask(life_.why_unusable());
    return ask_for_health(request_, name);
}

result<target> channel_core::resolve(std::string_view name) const {
    if (!life_.connected()) return cannot_ask(life_.why_unusable());
    return resolve(request_, name);
}

result<target> channel_core::resolve(const connect_request& over, std::string_view name) {
    auto found = resolve_target(over, name);
    metrics_registry* const metrics = over.context->metrics();
    if (found && metrics != nullptr) metrics->name_target(name);
    return found;
}

std::size_t channel_core::host() const noexcept {
    const auto at =
        std::ranges::find_if(request_.hosts, [this](const uri& each) { return is_same_server(each, request_.peer); });
    return at == request_.hosts.end() ? request_.first_host : static_cast<std::size_t>(at - request_.hosts.begin());
}

channel_statistics channel_core::statistics() const noexcept {
    channel_statistics out;
    const auto is_part = [](const channel_slot& slot) { return slot.state == slot_state::done && slot.content.more; };
    const auto parts = static_cast<std::uint64_t>(std::ranges::count_if(slots_.all(), is_part));
    out.submitted = submitted_.read();
    out.completed = out.submitted - slots_.open() - (slots_.ready() - parts);  // every other call was handed out
    out.stale = stale_;
    out.quarantined = quarantined();
    out.reconnects = life_.epoch() - 1;
    return out;
}

}  // namespace accel::core
