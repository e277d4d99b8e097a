// SPDX-License-Identifier: Apache-2.0
// A gateway lends the memory of an exchange to a channel: the request leaves from where it lies, and the response
// arrives where the client's answer leaves from.
#include "rig.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <poll.h>

namespace accel::tests {
namespace {

/// The backend between the client and the gateway, whose own bytes are on the host.
backend_case in_front_of(const backend_case& far) {
    backend_case out = far;
    if (out.scheme == "gdr" || out.scheme == "gpu") out.scheme = "rdma";
    return out;
}

/// One thread that serves requests and polls a channel to a server behind it, in a loop of its own.
class gateway {
  public:
    gateway(rig& behind, const backend_case& far) : behind_(behind.connect(with_slots(32))) {
        server_options options = calm_server();
        options.memory = memory_kind::host();
        options.workers = 0;
        result<server> made = server::listen(
            behind.ctx(), {in_front_of(far).listen_uri()}, [this](exchange one) { take(std::move(one)); }, options);
        if (!made) throw std::runtime_error("listen: " + made.error().message);
        front_.emplace(std::move(made).value());
    }

    static channel_options with_slots(std::uint32_t count) {
        channel_options options = calm_client();
        options.slots = count;
        return options;
    }
    [[nodiscard]] checked_channel connect(context& ctx) {
        result<channel> made = channel::connect(ctx, front_->endpoints().at(0), calm_client());
        if (!made) throw std::runtime_error("connect: " + made.error().message);
        return checked_channel(std::move(made).value());
    }
    [[nodiscard]] server& front() noexcept { return *front_; }
    [[nodiscard]] channel& behind() noexcept { return behind_.raw(); }

    /// Serves until `done`; false: it slept for `bound`, though there was something to do.
    bool run(const std::function<bool()>& done, nanoseconds bound = patience(5s)) {
        while (!done()) {
            if (step() > 0) continue;
            const bool quiet = front_->arm() && behind_->arm();
            if (quiet && !sleep(bound)) return done();
        }
        return true;
    }
    std::size_t step() {
        std::array<completion, 8> out;
        const std::size_t got = behind_.poll(out);
        for (std::size_t i = 0; i < got; ++i) answer(out[i]);
        return got + front_->poll();
    }

    std::size_t copied = 0;     ///< requests
    std::size_t misplaced = 0;  ///< responses that came elsewhere than where the answer leaves from
    std::vector<status> ends;   ///< of answers
    std::function<void(const completion&, const exchange&)> on_response = [](const auto&, const auto&) {};

  private:
    void take(exchange one) {
        const auto call = behind_.begin();
        ASSERT_EQ(call.code(), status::ok);
        const auto room = one.response_slice();
        ASSERT_EQ(room.code(), status::ok);
        EXPECT_EQ(room->data(), one.response().data());
        submit_options options{.tag = call->id.slot, .trace_id = one.trace_id(), .response_into = *room};
        if (const auto request = one.request_slice()) {
            EXPECT_EQ(request->data(), one.request().data());
            EXPECT_EQ(request->size(), one.request().size());
            EXPECT_EQ(behind_.submit(call->id, *request, options), status::ok);
        } else {
            EXPECT_EQ(request.error(), status::unsupported);
            ++copied;
            copy(call->request, one.request());
            EXPECT_EQ(behind_.submit(call->id, one.request().size(), options), status::ok);
        }
        kept_[call->id.slot].emplace(std::move(one));
    }
    void answer(const completion& c) {
        std::optional<exchange> one = std::exchange(kept_.at(c.tag), std::nullopt);
        ASSERT_TRUE(one);
        on_response(c, *one);
        if (c.status != status::ok) {
            ends.push_back(one->fail(c.status));
        } else {
            if (!c.response.empty() && c.response.data() != one->response().data()) ++misplaced;
            ends.push_back(one->reply(c.response.size()));
        }
    }
    [[nodiscard]] bool sleep(nanoseconds bound) {
        std::array<pollfd, 2> fds{{{front_->event_fd(), POLLIN, 0}, {behind_->event_fd(), POLLIN, 0}}};
        return ::poll(fds.data(), fds.size(), static_cast<int>(bound / 1ms)) != 0;
    }

    checked_channel behind_;
    std::array<std::optional<exchange>, 32> kept_;
    std::optional<server> front_;
};

class forwarding : public on_every_backend {
  protected:
    static bool lends_everything() { return GetParam().scheme != "local" && GetParam().scheme != "zmq"; }
};

/// Runs `clients` beside the gateway's loop.
template <class Clients>
void serve_while(gateway& between, Clients clients) {
    std::atomic<bool> done{false};
    std::thread caller([&] {
        clients();
        done = true;
    });
    while (!done) (void)between.run([&] { return done.load(); }, patience(20ms));
    caller.join();
}

/// Of sessions that come and go, several requests of each behind one another.
TEST_P(forwarding, a_request_is_forwarded_from_where_it_lies) {
    if (GetParam().scheme == "local") GTEST_SKIP() << "its requests are the client's memory";
    constexpr std::array<std::size_t, 7> sizes{0, 1, 64, 1'000, 1'024, 20'000, 65'536};
    rig r(GetParam());
    gateway between(r, GetParam());
    std::size_t long_requests = 0;
    serve_while(between, [&] {
        std::deque<checked_channel> all;
        std::uint64_t seed = 0;
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(28)); ++i) {
            all.push_back(between.connect(r.ctx()));
            if (all.size() > 8) all.pop_front();
            const std::size_t size = sizes.at(i % sizes.size());
            long_requests += size >= 1'024 ? 3 * all.size() : 0;
            for (checked_channel& each : all)
                for (int n = 0; n < 3; ++n) each.send_seed(size, ++seed);
            for (checked_channel& each : all) {
                for (int n = 0; n < 3; ++n) {
                    const completion c = each.next();
                    EXPECT_EQ(c.status, status::ok) << to_string(c.status);
                    EXPECT_EQ(c.response.size(), size);
                    EXPECT_TRUE(matches(c.response, c.trace_id));
                }
            }
        }
    });
    EXPECT_TRUE(std::ranges::all_of(between.ends, [](status each) { return each == status::ok; }));
    EXPECT_EQ(between.misplaced, 0U);
    if (lends_everything())
        EXPECT_EQ(between.copied, 0U);
    else
        EXPECT_LE(between.copied, long_requests) << "only messages from 1 KiB on are ZeroMQ's own";
}

TEST_P(forwarding, memory_that_belongs_to_the_client_is_not_lent) {
    if (GetParam().scheme != "local") GTEST_SKIP() << "slots of this transport are the server's";
    held_exchanges held;
    server_options options = calm_server();
    options.memory = memory_kind::host();
    rig r(GetParam(), held.keeper(), options);
    auto client = r.connect();
    client.send_seed(100, 1);
    exchange one = held.take();
    EXPECT_EQ(one.request_slice().code(), status::unsupported);
    EXPECT_EQ(one.response_slice().code(), status::unsupported);
    echo(std::move(one));
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(forwarding, memory_stays_when_the_session_dies_while_it_is_lent) {
    if (GetParam().scheme == "local") GTEST_SKIP() << "its requests are the client's memory";
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    gateway between(r, GetParam());
    bool right = false;
    between.on_response = [&](const completion& c, const exchange& one) {
        EXPECT_TRUE(one.cancelled());
        right = c.status == status::ok && matches(one.response().first(c.response.size()), 7);
    };
    std::optional<checked_channel> client;
    serve_while(between, [&] {
        client.emplace(between.connect(r.ctx()));
        client->send_seed(20'000, 7);
        ASSERT_TRUE(held.wait_for(1));
        client->forget();
        client.reset();
    });
    ASSERT_TRUE(between.run([&] { return between.front().statistics().sessions == 0; }));
    for (int round = 0; round < 20; ++round) {
        (void)between.step();
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_GT(between.front().statistics().memory_bytes, 0U) << "freed while it is lent";
    echo(held.take());
    ASSERT_TRUE(between.run([&] { return !between.ends.empty(); }));
    EXPECT_TRUE(right);
    EXPECT_EQ(between.ends, std::vector{status::peer_lost});
    EXPECT_TRUE(eventually(patience(5s), [&] {
        (void)between.step();
        return between.front().statistics().memory_bytes == 0;
    }));
    // The next session lends other memory.
    between.on_response = [](const auto&, const auto&) {};
    serve_while(between, [&] {
        auto next = between.connect(r.ctx());
        next.send_seed(300, 8);
        echo(held.take());
        const completion c = next.next();
        EXPECT_TRUE(matches(c.response, 8));
    });
}

TEST_P(forwarding, answers_of_other_threads_wake_the_descriptor_of_a_server) {
    held_exchanges held;
    server_options options = calm_server();
    options.workers = 0;
    rig r(GetParam(), held.keeper(), options);
    std::atomic<bool> stop{false};
    std::atomic<bool> overslept{false};
    std::thread loop([&] {
        while (!stop) {
            if (r.served().poll() > 0 || !r.served().arm()) continue;
            pollfd fd{.fd = r.served().event_fd(), .events = POLLIN, .revents = 0};
            if (::poll(&fd, 1, static_cast<int>(patience(10s) / 1ms)) == 0) overslept = true;
        }
    });
    {
        auto client = r.connect();
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(200)); ++i) {
            client.send_seed(100, i);
            exchange one = held.take();
            if (i % 20 == 0) std::this_thread::sleep_for(2ms);
            echo(std::move(one));
            ASSERT_EQ(client.finish(status::ok), 1U);
        }
        stop = true;  // the end of the session wakes it
    }
    loop.join();
    EXPECT_FALSE(overslept) << "a wake-up was lost";
}

ACCEL_INSTANTIATE(forwarding, all_backends);

}  // namespace
}  // namespace accel::tests
