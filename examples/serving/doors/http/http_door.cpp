// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/http_door.hpp"

#include "serving/doors/http/connection.hpp"
#include "serving/doors/http/http_text.hpp"
#include "serving/doors/http/listener.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// How exact the deadlines of clients are.
constexpr std::chrono::milliseconds tick_time{100};

}  // namespace

http_door::http_door(asio::io_context& loop, tcp::acceptor acceptor, model_table& models, const door_settings& settings,
                     door_access access)
    : acceptor_(std::move(acceptor)),
      timer_(loop),
      models_(models),
      settings_(settings),
      access_(std::move(access)),
      metrics_("http", http_statuses(), names_of(models), settings.max_json_memory) {}

http_door::~http_door() {
    let_go();
}

std::string http_door::endpoint() const {
    return (access_.tls ? "https://" : "http://") + address_of(acceptor_);
}

result<void> http_door::start() {
    if (auto listens = listen(acceptor_); !listens) return listens;
    accept();
    tick();
    return {};
}

/// One newcomer at a time, because it may have to wait for room.
void http_door::accept() {
    if (newcomer_) admit();
    if (accepting_ || stopping_ || newcomer_) return;
    accepting_ = true;
    acceptor_.async_accept([this](const error_code& failed, tcp::socket from) {
        accepting_ = false;
        // Where descriptors are short, the next tick tries again.
        if (failed || stopping_) return;
        newcomer_.emplace(std::move(from));
        accept();
    });
}

/// Its client's share comes first: a client that has more than that costs no other one a connection. Where nobody
/// makes room, it waits until a connection ends, or until the next tick.
void http_door::admit() {
    tcp::socket from = std::move(*newcomer_);
    newcomer_.reset();
    error_code failed;
    const auto client = client_of(from.remote_endpoint(failed));
    if (failed) return;  // it has left
    if (order_.count(client) >= most_of_an_address(settings_)) {
        if (!close_longest_idle(&client)) return;
    } else if (connections_.size() >= settings_.max_connections && !close_longest_idle(nullptr)) {
        newcomer_.emplace(std::move(from));
        return;
    }
    take(std::move(from), client);
}

bool http_door::close_longest_idle(const asio::ip::address* client) {
    connection* const longest = order_.longest(client, [](connection& each) { return !each.has_begun(); });
    if (longest != nullptr) longest->yield();
    return longest != nullptr;
}

void http_door::take(tcp::socket from, const asio::ip::address& client) {
    error_code ignored;
    from.set_option(tcp::no_delay{true}, ignored);
    ++counts_.connections;
    door_metrics::add(metrics_.connections, 1);
    door_metrics::add(metrics_.open_connections, 1);
    const auto made = std::make_shared<connection>(std::move(from), client, *this);
    connections_.insert(made);
    order_.join(*made);
    made->start();
}

void http_door::remove(const std::shared_ptr<connection>& gone) {
    connections_.erase(gone);
    order_.leave(*gone);
    door_metrics::drop(metrics_.open_connections);
    accept();
}

void http_door::let_go() {
    for (const auto& each : connections_) {
        order_.leave(*each);
        each->leave_door();
    }
    connections_.clear();
}

void http_door::tick() {
    timer_.expires_after(tick_time);
    timer_.async_wait([this](const error_code& failed) {
        if (failed) return;
        expire();
        accept();
        const bool over = stopping_ && (connections_.empty() || std::chrono::steady_clock::now() >= stop_at_);
        if (!over) return tick();
        let_go();
        stopped_();
    });
}

void http_door::expire() {
    const auto now = std::chrono::steady_clock::now();
    while (connection* const due = deadlines_.take_due(now)) {
        const auto kept = due->shared_from_this();
        due->expire(now);
        if (const auto next = due->next_look(); next != std::chrono::steady_clock::time_point::max())
            deadlines_.look_by(*due, std::max(next, now + tick_time));
    }
}

void http_door::renew(door_access access) {
    access.regions = access_.regions;
    access_ = std::move(access);
}

void http_door::stop(std::function<void()> done) {
    stopped_ = std::move(done);
    stopping_ = true;
    stop_at_ = std::chrono::steady_clock::now() + settings_.drain_timeout;
    error_code ignored;
    acceptor_.close(ignored);
    newcomer_.reset();
    const std::vector<std::shared_ptr<connection>> all(connections_.begin(), connections_.end());
    for (const auto& each : all) each->drain();
}

}  // namespace accel::examples::serving::doors
