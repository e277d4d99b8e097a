// SPDX-License-Identifier: Apache-2.0
#include "core/client/reconnector.hpp"

#include "core/client/connect_attempts.hpp"
#include "core/client/named_servers.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <utility>

namespace accel::core {

reconnector::reconnector(const connect_request& request)
    : request_(request),
      pauses_(request.options.backoff_min, request.options.backoff_max),
      thread_(start_thread("accel-reconnect", [this] { run(); })) {
    request_.stopped = stop_.get_token();
}

reconnector::~reconnector() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_.request_stop();
    changed_.notify_all();
    thread_.join();
    if (made_) {
        (void)made_->path->close();
        close_session(request_, made_->session);
    }
}

void reconnector::start() noexcept {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
    changed_.notify_all();
}

channel_connection reconnector::take() {
    const std::lock_guard lock(mutex_);
    ready_.store(false, std::memory_order_relaxed);
    signal_.clear();
    return *std::exchange(made_, std::nullopt);
}

bool reconnector::pause(nanoseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return stopping_; });
    return !stopping_;
}

void reconnector::load_keys() {
    if (request_.security == nullptr || request_.security->insecure()) return;
    const security_options& options = request_.security->options;
    const std::string files = stamp_of_files(options);
    if (files == request_.security->files || !pause(key_look_interval) || files != stamp_of_files(options)) return;
    if (auto loaded = load_client_security(options))
        request_.security = std::move(*loaded);
    else
        limited_log(request_.peer.host)
            .warn("key files cannot be read ({}); connecting with the keys read before", loaded.error().message);
}

result<channel_connection> reconnector::try_hosts() {
    load_keys();
    if (request_.hosts.empty()) return open_connection(request_);
    const nanoseconds deadline = deadline_after(request_.options.connect_timeout);
    if (!request_.named.empty()) request_.hosts = resolve_names(request_.named, deadline, request_.stopped);
    connect_request one = request_;
    std::size_t left = request_.hosts.size();
    for (const uri& host : request_.hosts) {
        one.peer = request_.peer = host;
        one.security = request_.security =
            named_after(request_.security, request_.options.security, request_.peer.name);
        one.options.connect_timeout = share_of(deadline, left--);
        auto made = open_connection(one);
        if (made || left == 0) return made;
    }
    return error{status::peer_lost, 0, "no host is left to connect to"};
}

void reconnector::run() {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stopping_ || wanted_; });
            if (stopping_) return;
            wanted_ = false;
        }
        pauses_.ended_after(now() - connected_at_);
        while (pause(pauses_.take()))
            if (guarded([this] { return connect(); })) break;
    }
}

result<void> reconnector::connect() {
    auto made = guarded([this] { return try_hosts(); });
    if (!made) {
        limited_log(request_.peer.host)
            .info("reconnecting to {} in {} ms: {}", request_.peer.text(), pauses_.coming().count() / 1'000'000,
                  made.error().message);
        return made.error();
    }
    connected_at_ = now();
    const std::lock_guard lock(mutex_);
    made_ = std::move(*made);
    ready_.store(true, std::memory_order_release);
    signal_.set();
    return {};
}

}  // namespace accel::core
