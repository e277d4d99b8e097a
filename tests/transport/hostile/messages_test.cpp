// SPDX-License-Identifier: Apache-2.0
// Clients that may come in, and say too much.
#include "hostile/attacks.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

using tests::eventually;
using tests::until_hung;

std::vector<std::byte> malformed_hello() {
    auto bytes = core::encode_control({9, wish()});
    bytes.pop_back();
    return frame(bytes);
}

/// Each kind of message, also those that only servers send.
std::map<std::string, std::vector<std::byte>> every_kind() {
    return {{"hello", frame(control_message{1, wish()})},
            {"hello that is refused", frame(control_message{1, wish(core::max_slots, 1 << 30)})},
            {"query", frame(control_message{1, core::query{}})},
            {"heartbeat", frame(control_message{0, core::heartbeat{}})},
            {"goodbye", frame(control_message{0, core::goodbye{12345, status::closed}})},
            {"welcome", frame(control_message{1, core::welcome{}})},
            {"refused", frame(control_message{1, core::refused{status::closed, "no"}})},
            {"offers", frame(control_message{1, core::offers{{"tcp"}}})},
            {"malformed hello", malformed_hello()},
            {"garbage", frame(std::vector<std::byte>(64, std::byte{0xa5}))}};
}

/// A client that listens for heartbeats and sends its own.
class heartbeat_listener {
  public:
    heartbeat_listener(const target& at, const identity& keys)
        : wire_(wire::open(client_address, at, keys)), thread_([this] { run(); }) {}
    ~heartbeat_listener() { end(); }
    heartbeat_listener(const heartbeat_listener&) = delete;
    heartbeat_listener& operator=(const heartbeat_listener&) = delete;
    [[nodiscard]] unsigned beats() const { return beats_.load(); }
    [[nodiscard]] bool lost() const { return lost_.load(); }

  private:
    void end() {
        stop_.store(true);
        if (thread_.joinable()) thread_.join();
    }
    void run() { lost_ = !listen(); }
    [[nodiscard]] bool listen() {
        if (!wire_ || !wire_->send(core::control_greeting) || !wire_->open_session(wish(1, 1024, patience(500ms))))
            return false;
        while (!stop_.load()) {
            const auto message = wire_->hear(20ms);
            if (message && std::holds_alternative<core::goodbye>(message->body)) return false;
            if (!message || !std::holds_alternative<core::heartbeat>(message->body)) continue;
            beats_.fetch_add(1);
            if (!wire_->send(control_message{0, core::heartbeat{{{}, {}, core::now()}}})) return false;
        }
        return true;
    }
    std::optional<wire> wire_;
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> beats_{0};
    std::atomic<bool> lost_{false};
    std::thread thread_;
};

/// Attackers have a key of their own: what a client may have is for each key.
struct messages : arena {
    messages() {
        folder_.make("other");
        folder_.authorize({"client", "other"});
    }
    [[nodiscard]] identity attackers_keys() const { return client_keys("other"); }
    /// The flood goes on until heartbeats have come meanwhile.
    void endure_while_listening(const std::string& name, const attack& what, const siege_options& options) {
        const heartbeat_listener listener(server_->where(), client_keys());
        EXPECT_TRUE(eventually(until_hung(), [&] { return listener.beats() > 0 || listener.lost(); })) << name;
        const siege attacked(what, server_->where(), options.threads);
        std::this_thread::sleep_for(sanitized() ? options.lasts / 3 : options.lasts);
        expect_newcomer_served("under a flood of " + name);
        const unsigned before = listener.beats();
        EXPECT_TRUE(eventually(until_hung(), [&] { return listener.beats() > before + 1 || listener.lost(); })) << name;
        EXPECT_FALSE(listener.lost()) << name << ": the session was lost";
    }
};

TEST_P(messages, floods_of_every_kind_of_message_delay_no_heartbeat) {
    open();
    for (const auto& [name, bytes] : every_kind())
        endure_while_listening(name, flood(stranger_address, attackers_keys(), bytes), {.lasts = 250ms});
    expect_unharmed();
}

TEST_P(messages, floods_over_many_connections_delay_no_heartbeat) {
    open();
    const auto keys = attackers_keys();
    const auto many = [keys](const target& at, const std::atomic<bool>& go) {
        std::vector<std::optional<wire>> all(200);
        const auto bytes = repeated(frame(control_message{1, core::query{}}), 4 << 10);
        while (go.load()) {
            for (auto& each : all) {
                if (!go.load()) return;
                if (!each) {
                    each = wire::open(stranger_address, at, keys);
                    if (each && !each->send(core::control_greeting)) each.reset();
                    continue;
                }
                const bool broken = (!each->stream().wants_to_write() && !each->stream().send_raw(bytes)) ||
                                    each->stream().flush() == core::tls_outcome::failed || !each->discard();
                if (broken) each.reset();
            }
        }
    };
    endure_while_listening("queries over 200 connections", many, {.lasts = 1s});
    expect_unharmed();
}

TEST_P(messages, impatient_clients_get_few_heartbeats) {
    open();
    const auto keys = attackers_keys();
    // Each says that it takes a millisecond of silence for death.
    const auto impatient = [keys](const target& at, const std::atomic<bool>& go) {
        std::vector<wire> all;
        for (int i = 0; i < 100 && go.load(); ++i) {
            auto one = wire::open(stranger_address, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            one->send(control_message{1, wish(1, 64, 1ms)});
            all.push_back(std::move(*one));
        }
        const auto alive = frame(control_message{0, core::heartbeat{}});
        while (go.load()) {
            for (wire& each : all) {
                static_cast<void>(each.discard());
                static_cast<void>(each.send(alive));
            }
            std::this_thread::sleep_for(20ms);
        }
    };
    endure_while_listening("sessions of great impatience", impatient, {.lasts = 300ms});
    endure(impatient);
}

TEST_P(messages, short_sessions_do_not_delay_other_clients) {
    open("&max_sessions=200");
    // Large slots, so that much is mapped and unmapped.
    auto bytes = frame(control_message{1, wish(16, 1 << 20)});
    const auto over = frame(control_message{0, core::goodbye{0, status::closed}});
    const auto keys = attackers_keys();
    const auto busy = [keys, bytes, over](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto one = wire::open(stranger_address, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            for (int i = 0; i < 64 && one->send(bytes); ++i) static_cast<void>(one->discard());
            static_cast<void>(one->hear(5ms));
            one->send(over);
        }
    };
    endure(busy, {.threads = 2, .lasts = 500ms});
}

TEST_P(messages, a_greedy_client_leaves_sessions_for_others) {
    open("&max_sessions=12&max_client_sessions=6&max_client_memory_bytes=1M");
    const auto keys = attackers_keys();
    auto greedy = wire::open(stranger_address, server_->where(), keys);
    ASSERT_TRUE(greedy);
    ASSERT_TRUE(greedy->send(core::control_greeting));
    for (std::uint64_t i = 1; i <= 40; ++i) ASSERT_TRUE(greedy->send(control_message{i, wish()}));
    int granted = 0, refusals = 0;
    while (granted + refusals < 40) {
        const auto answer = greedy->hear(patience(5s));
        ASSERT_TRUE(answer);
        granted += std::holds_alternative<core::welcome>(answer->body) ? 1 : 0;
        const auto* no = std::get_if<core::refused>(&answer->body);
        if (no == nullptr) continue;
        EXPECT_EQ(no->code, status::overloaded);
        ++refusals;
    }
    EXPECT_EQ(granted, 6);
    expect_newcomer_served("while another client has all that it may have");
    // Nor is there a way around the limit with more connections.
    auto again = wire::open(stranger_address, server_->where(), keys);
    ASSERT_TRUE(again && again->send(core::control_greeting));
    EXPECT_FALSE(again->open_session(wish()));
    greedy.reset();
    again.reset();
    expect_unharmed();
}

INSTANTIATE_TEST_SUITE_P(hostile, messages, ::testing::Bool(), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
