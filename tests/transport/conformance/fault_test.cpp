// SPDX-License-Identifier: Apache-2.0
// Networks and peers that misbehave at any byte, by a proxy between client and server on its control and data
// paths. Every accepted call ends exactly once and in time, nothing crashes, and what is encrypted is never
// delivered changed.
#include "fault_proxy.hpp"
#include "keys.hpp"
#include "rig.hpp"
#include "sanitizers.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

constexpr const char* server_host = "127.0.0.2";
constexpr const char* proxy_host = "127.0.0.3";
constexpr std::size_t control_route = 0;
/// Of transports with a data port of their own; tcp's second connection to the one port is its data path.
constexpr std::size_t data_route = 1;
constexpr std::size_t small_bytes = 300;
constexpr std::size_t large_bytes = 50'000;

/// A server behind a proxy, and clients that come through the proxy one after another.
class faulty_network {
  public:
    explicit faulty_network(const backend_case& backend)
        : backend_(backend),
          ctx_(quiet_context()),
          server_(listen()),
          proxy_(proxy_host, server_host, {control_port_, data_port_}) {}

    /// One client through the proxy with this fault on it: connects, calls, ends. Returns how many calls went
    /// well.
    unsigned one_client(const fault& what) {
        proxy_.set(at_port(what));
        SCOPED_TRACE(describe(what));
        const auto start = std::chrono::steady_clock::now();
        const channel_options options = client_options(what.kind);
        context ctx = quiet_context();  // its own control connection, which the fault may be for
        auto connected = channel::connect(ctx, client_uri(), options);
        if (!connected) {
            EXPECT_NE(connected.code(), status::ok);
            EXPECT_LT(std::chrono::steady_clock::now() - start, options.connect_timeout + patience(10s));
            return 0;
        }
        checked_channel client(std::move(connected).value());
        return calls(client, what);
    }
    /// The server is as good as new for a client without faults.
    void expect_server_well() {
        proxy_.set({});
        EXPECT_EQ(one_client({}), 4U) << "the server does not serve a healthy client any more";
    }
    [[nodiscard]] std::uint64_t struck() const { return proxy_.struck(); }
    [[nodiscard]] unsigned wrong_requests() const { return wrong_; }

  private:
    [[nodiscard]] fault at_port(fault what) const {
        if (backend_.scheme != "tcp") return what;
        what.connection = what.route;
        what.route = control_route;
        return what;
    }

    server listen() {
        server_options options = calm_server();
        options.security = keys_.server();
        options.peer_timeout = patience(2s);
        control_port_ = free_port({server_host, proxy_host});
        do data_port_ = free_port({server_host, proxy_host});
        while (data_port_ == control_port_);
        options.data_port = data_port_;
        const std::string uri = backend_.scheme + "://" + server_host + ":" + std::to_string(control_port_);
        auto listening = server::listen(
            ctx_, {std::string_view(uri)},
            [this](exchange one) {
                if (!matches(one.request(), one.trace_id())) ++wrong_;
                echo(std::move(one));
            },
            options);
        if (!listening) throw std::runtime_error(listening.error().message);
        return std::move(listening).value();
    }
    [[nodiscard]] std::string client_uri() const {
        return backend_.scheme + "://" + proxy_host + ":" + std::to_string(control_port_);
    }
    /// Time-outs are short where one may have to pass, and long where all has to go well.
    channel_options client_options(fault_kind kind) {
        channel_options options = calm_client();
        options.security = keys_.client();
        if (kind == fault_kind::none || kind == fault_kind::delay) return options;
        options.connect_timeout = patience(400ms);
        options.call_timeout = patience(150ms);
        options.close_timeout = patience(100ms);
        options.peer_timeout = patience(500ms);
        options.slots = 4;
        return options;
    }
    static std::string describe(const fault& f) {
        return "kind " + std::to_string(static_cast<int>(f.kind)) + " direction " +
               std::to_string(static_cast<int>(f.direction)) + " offset " + std::to_string(f.offset) + " route " +
               std::to_string(f.route);
    }
    /// In a plain stream a changed payload byte may come through; a changed header byte may make it another
    /// message.
    [[nodiscard]] bool may_be_changed(const fault& what) const {
        return what.kind == fault_kind::corrupt && what.route == data_route && !backend_.encrypted;
    }
    unsigned calls(checked_channel& client, const fault& what) {
        unsigned well = 0;
        for (const std::size_t length : {small_bytes, large_bytes, std::size_t{0}, std::size_t{1}}) {
            const auto call = client.begin();
            if (!call) break;
            fill(call->request.first(length), length);
            if (client.submit(call->id, length, {.trace_id = length}) != status::ok) break;
        }
        while (client.open_calls() > 0) {
            const completion c = client.next();
            if (c.status == status::ok && !may_be_changed(what)) {
                EXPECT_EQ(c.response.size(), c.trace_id);
                EXPECT_TRUE(matches(c.response, c.trace_id)) << "a changed payload was delivered";
            }
            EXPECT_LE(c.response.size(), client->max_response_bytes());
            well += c.status == status::ok ? 1U : 0U;
        }
        return well;
    }

    const backend_case& backend_;
    key_folder keys_;
    std::atomic<unsigned> wrong_{0};
    std::uint16_t control_port_ = 0;
    std::uint16_t data_port_ = 0;
    context ctx_;
    server server_;
    fault_proxy proxy_;
};

/// Most of a fault's time is waiting: several networks have theirs at once.
class faults : public on_every_backend {
  protected:
    void SetUp() override {
        // ThreadSanitizer does not see libzmq close a descriptor whose number another network gets next.
        const bool one = thread_sanitizer && GetParam().scheme == "zmq";
        for (int i = 0; i < (one ? 1 : networks_at_once); ++i)
            networks_.push_back(std::make_unique<faulty_network>(GetParam()));
    }
    /// One client for each of these faults.
    void endure(const std::vector<fault>& all) {
        std::atomic<std::size_t> next{0};
        std::vector<std::thread> threads;
        for (const auto& each : networks_)
            threads.emplace_back([&all, &next, &network = *each] {
                for (std::size_t i = next++; i < all.size(); i = next++) network.one_client(all[i]);
            });
        for (std::thread& each : threads) each.join();
    }
    void expect_servers_well() {
        for (const auto& each : networks_) each->expect_server_well();
    }
    [[nodiscard]] std::uint64_t struck() const {
        std::uint64_t sum = 0;
        for (const auto& each : networks_) sum += each->struck();
        return sum;
    }
    [[nodiscard]] unsigned wrong_requests() const {
        unsigned sum = 0;
        for (const auto& each : networks_) sum += each->wrong_requests();
        return sum;
    }
    [[nodiscard]] unsigned one_client(const fault& what) { return networks_.front()->one_client(what); }

  private:
    static constexpr int networks_at_once = 6;
    std::vector<std::unique_ptr<faulty_network>> networks_;
};

constexpr std::array both_directions{flow::to_server, flow::to_client};

/// Every byte where formats are densest, then fewer: `dense` in all directions, up to `last`.
std::vector<std::uint64_t> offsets(std::uint64_t dense, std::uint64_t last) {
    std::vector<std::uint64_t> out;
    const auto step = static_cast<std::uint64_t>(time_factor());
    for (std::uint64_t at = 0; at < dense; at += step) out.push_back(at);
    for (std::uint64_t at = dense; at <= last; at += step * (13 + at / 8)) out.push_back(at);
    return out;
}

/// All of it is sent by 4 calls and their headers, in either direction.
constexpr std::uint64_t data_end = large_bytes + small_bytes + 64 * 6;

TEST_P(faults, calls_succeed_without_faults) {
    EXPECT_EQ(one_client({}), 4U);
    if (!GetParam().sockets) return;
    EXPECT_EQ(one_client({.kind = fault_kind::delay, .offset = 200, .route = data_route}), 4U);
    EXPECT_EQ(struck(), 1U);
    EXPECT_EQ(wrong_requests(), 0U);
}

TEST_P(faults, calls_end_once_whatever_becomes_of_the_data_path) {
    if (!GetParam().sockets) GTEST_SKIP() << "the data passes no socket; rdma_fault_test faults the device";
    std::vector<fault> broken;
    std::vector<fault> changed;
    const auto broken_at = [&broken](fault_kind kind, flow direction, std::uint64_t at) {
        broken.push_back({.kind = kind, .direction = direction, .offset = at, .route = data_route});
    };
    for (const flow direction : both_directions) {
        for (const fault_kind kind : {fault_kind::cut, fault_kind::end, fault_kind::truncate})
            for (const std::uint64_t at : offsets(kind == fault_kind::cut ? 200 : 20, data_end))
                broken_at(kind, direction, at);
        for (const std::uint64_t at : {0U, 1U, 63U, 64U, 100U, 128U, 129U, 500U, 20'000U, 50'000U})
            broken_at(fault_kind::stall, direction, at);
        for (const std::uint64_t at : {0U, 64U, 128U, 1000U}) broken_at(fault_kind::delay, direction, at);
        for (const std::uint64_t at : offsets(200, data_end))
            for (const std::uint8_t mask : {std::uint8_t{0x01}, std::uint8_t{0xff}})
                changed.push_back({.kind = fault_kind::corrupt,
                                   .direction = direction,
                                   .offset = at,
                                   .route = data_route,
                                   .mask = mask});
    }
    endure(broken);
    const std::uint64_t struck_before = struck();
    EXPECT_GT(struck_before, 110U / static_cast<unsigned>(time_factor()));
    EXPECT_EQ(wrong_requests(), 0U);
    expect_servers_well();
    endure(changed);
    EXPECT_GT(struck() - struck_before, 100U / static_cast<unsigned>(time_factor()));
    if (GetParam().encrypted) {
        EXPECT_EQ(wrong_requests(), 0U) << "a changed request was delivered in spite of its encryption";
    }
    expect_servers_well();
}

TEST_P(faults, calls_end_once_whatever_becomes_of_the_control_path) {
    std::vector<fault> all;
    for (const flow direction : both_directions) {
        for (const fault_kind kind : {fault_kind::cut, fault_kind::corrupt, fault_kind::end})
            for (std::uint64_t at = 0; at < 900;
                 at += (kind == fault_kind::end ? 97U : 31U) * static_cast<unsigned>(time_factor()))
                all.push_back({.kind = kind, .direction = direction, .offset = at, .route = control_route});
        for (const std::uint64_t at : {0U, 10U, 64U, 200U, 400U, 700U})
            all.push_back({.kind = fault_kind::stall, .direction = direction, .offset = at, .route = control_route});
    }
    endure(all);
    EXPECT_GT(struck(), 30U / static_cast<unsigned>(time_factor()));
    EXPECT_EQ(wrong_requests(), 0U);
    expect_servers_well();
}

ACCEL_INSTANTIATE(faults, network_backends);

}  // namespace
}  // namespace accel::tests
