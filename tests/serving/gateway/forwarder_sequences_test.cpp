// SPDX-License-Identifier: Apache-2.0
// The forwarder in one process and one thread, over `local`: two clients send, cancel and wait, and three unequal
// servers answer, fail, give requests back, are lost and come back, in random order.
#include "gateway_rig.hpp"
#include "serving/gateway/forwarder.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace gateway = examples::gateway;

constexpr std::size_t queue = 4;
constexpr std::size_t nowhere = 3;

/// What a client has asked for and has no answer to.
struct open_request {
    std::size_t client = 0;
    call_id id;
    bool cancelled = false;
    std::size_t at = nowhere;             ///< the server whose handler has it; else it waits
    std::size_t returned_from = nowhere;  ///< the server that gave it back
    bool answered = false;                ///< by its handler
    bool lost = false;                    ///< with the server that had it
    std::optional<status> said{};         ///< by its handler, which failed
};

struct polled_server {
    std::unique_ptr<server> serves;  ///< null: it is lost
    std::uint32_t slots = 0;
    std::deque<exchange> held;
    std::vector<call_id> taken;  ///< slots that the test uses up
};

class sequence {
  public:
    explicit sequence(unsigned seed) : random_(seed) {
        for (std::size_t i = 0; i < behind_.size(); ++i) {
            behind_[i].slots = static_cast<std::uint32_t>(i) + 1;
            servers_.emplace_back("local://server", std::vector<std::string>{});
            start(i);
            way_.add(servers_.back());
        }
        front_ = serve([this](exchange one) { passing_.take(way_, std::move(one)); });
        for (int i = 0; i < 2; ++i) clients_.push_back(connect(ctx_, client_uri(front_->endpoints().at(0))));
    }

    void step() {
        switch (random_() % 11) {
            case 0:
                return cancel();
            case 10:
                return random_() % 2 == 0 ? lose(any_server()) : come_back(any_server());
            case 1:
            case 2:
                return give_back();
            case 3:
                return take_slot(any_server());
            case 4:
                return release_slot(any_server());
            case 5:
            case 6:
                return answer(any_server());
            default:
                return send(random_() % clients_.size());
        }
    }
    /// All that was said has come through, and nobody waits for a slot that is free. The forwarder is asked to look
    /// after those that wait every other time.
    [[nodiscard]] bool settles() {
        looks_ = looks_ || random_() % 2 == 0;
        unknown_ = unknown_ && !looks_;
        const bool settled = eventually([this] {
            poll();
            return no_request_is_passed() && (unknown_ || no_slot_is_idle());
        });
        looks_ = false;
        return settled;
    }
    /// Every request ends, and nothing stays behind.
    void finish() {
        looks_ = true;
        for (std::size_t i = 0; i < behind_.size(); ++i)
            while (!behind_[i].taken.empty()) release_slot(i);
        EXPECT_TRUE(eventually([this] {
            for (std::size_t i = 0; i < behind_.size(); ++i) answer(i);
            poll();
            return open_.empty() && passing_.open() == 0;
        })) << open_.size()
            << " requests have no answer";
        EXPECT_TRUE(eventually([this] {
            for (std::size_t i = 0; i < behind_.size(); ++i) {
                answer(i);
                take_slot(i);
            }
            poll();
            return std::ranges::all_of(
                behind_, [](const auto& each) { return !each.serves || each.taken.size() == each.slots; });
        })) << "a slot was lost";
    }

  private:
    [[nodiscard]] std::unique_ptr<server> serve(handler with) {
        server_options options;
        options.workers = 0;
        options.drain_timeout = 1ms;
        return std::make_unique<server>(
            server::listen(ctx_, std::vector{any_uri("local")}, std::move(with), options).value());
    }
    void start(std::size_t i) {
        behind_[i].serves = serve([this, i](exchange one) {
            if (const auto found = open_.find(one.trace_id()); found != open_.end()) {
                EXPECT_TRUE(found->second.at == nowhere && !found->second.lost) << "a handler has seen it already";
                found->second.at = i;
            }
            behind_[i].held.push_back(std::move(one));
        });
        channel_options options;
        options.slots = behind_[i].slots;
        servers_[i].add(connect(ctx_, client_uri(behind_[i].serves->endpoints().at(0)), options));
    }
    /// With the requests that its handler has. One server at least stays.
    void lose(std::size_t i) {
        const auto is_there = [](const auto& each) { return each.serves != nullptr; };
        if (!behind_[i].serves || std::ranges::count_if(behind_, is_there) == 1) return;
        EXPECT_TRUE(eventually([this] {
            poll();
            return std::ranges::none_of(open_, [](const auto& each) { return each.second.answered; });
        }));
        for (auto& [number, each] : open_)
            if (each.at == i) each.lost = true;
        behind_[i].serves.reset();
        behind_[i].held.clear();
        EXPECT_TRUE(eventually([&] {
            poll();
            return !servers_[i].connected();
        }));
        for (const call_id each : std::exchange(behind_[i].taken, {})) (void)path(i).release(each);
        unknown_ = true;
    }
    void come_back(std::size_t i) {
        if (behind_[i].serves) return;
        start(i);
        unknown_ = true;
    }
    [[nodiscard]] std::size_t any_server() { return random_() % behind_.size(); }
    [[nodiscard]] std::uint64_t any_open() {
        return std::next(open_.begin(), static_cast<std::ptrdiff_t>(random_() % open_.size()))->first;
    }
    [[nodiscard]] channel& path(std::size_t server) { return servers_[server].lines().back().path; }

    void send(std::size_t client) {
        const auto call = clients_[client].begin();
        if (!call) return;
        const std::uint64_t number = ++last_;
        call->request[0] = static_cast<std::byte>(number);
        ASSERT_EQ(clients_[client].submit(call->id, 1, {.timeout = patience(600s), .tag = number, .trace_id = number}),
                  status::ok);
        open_[number] = {client, call->id};
        const bool goes_on = !waits([](const auto& each) { return each.returned_from == nowhere; }) &&
                             (is_free(0) || is_free(1) || is_free(2));
        if (!goes_on && waiting() > queue) refused_ = number;
    }
    void cancel() {
        if (open_.empty()) return;
        open_request& one = open_[any_open()];
        if (one.cancelled) return;
        one.cancelled = looks_ = true;  // until then it takes room in the queue
        EXPECT_EQ(clients_[one.client].cancel(one.id), status::ok);
    }
    void answer(std::size_t server) {
        if (behind_[server].held.empty()) return;
        exchange one = take_held(server);
        const auto found = open_.find(one.trace_id());
        if (found != open_.end()) found->second.answered = true;
        if (found == open_.end() || random_() % 3 > 0) return answer_changed(std::move(one));
        // What a handler says goes to the client, also where it reads like a loss.
        static constexpr std::array failures{status::application_error, status::closed, status::not_found};
        found->second.said = failures.at(random_() % failures.size());
        (void)one.fail(*found->second.said, 42, "the model is tired");
    }
    /// At most once for each request: the forwarder counts how often.
    void give_back() {
        const std::size_t server = any_server();
        if (behind_[server].held.empty()) return;
        const auto found = open_.find(behind_[server].held.front().trace_id());
        if (found == open_.end() || found->second.returned_from != nowhere) return;
        found->second.returned_from = server;
        found->second.at = nowhere;
        (void)take_held(server).fail(status::closed, unseen_code, "not here");
    }
    exchange take_held(std::size_t server) {
        exchange one = std::move(behind_[server].held.front());
        behind_[server].held.pop_front();
        // The call of a cancelled request has ended before its slot is free.
        unknown_ = unknown_ || !open_.contains(one.trace_id());
        return one;
    }
    void take_slot(std::size_t server) {
        if (!behind_[server].serves) return;
        if (const auto call = path(server).begin()) behind_[server].taken.push_back(call->id);
    }
    void release_slot(std::size_t server) {
        if (behind_[server].taken.empty()) return;
        EXPECT_EQ(path(server).release(behind_[server].taken.back()), status::ok);
        behind_[server].taken.pop_back();
        unknown_ = true;
    }

    void poll() {
        (void)front_->poll();
        for (polled_server& each : behind_)
            if (each.serves) (void)each.serves->poll();
        for (gateway::upstream& to : servers_) {
            completion done;
            for (gateway::line& each : to.lines())
                while (each.path.poll({&done, 1}) == 1) passing_.finish(each, done);
        }
        if (looks_) passing_.look_after(ways_);
        for (channel& each : clients_) {
            completion done;
            while (each.poll({&done, 1}) == 1) end(done);
        }
    }
    void end(const completion& done) {
        const auto found = open_.find(done.tag);
        ASSERT_NE(found, open_.end()) << done.tag << " has ended twice";
        const open_request& one = found->second;
        if (one.said && !one.cancelled) {
            EXPECT_EQ(done.status, *one.said);
            EXPECT_EQ(done.code, 42U);
        } else if (one.lost && !one.cancelled) {
            EXPECT_EQ(done.status, status::peer_lost);
        } else if (done.status == status::ok) {
            EXPECT_EQ(done.response[0], static_cast<std::byte>(done.tag) ^ std::byte{0x5a});
        } else if (done.status == status::overloaded) {
            EXPECT_EQ(done.tag, refused_) << "there is room in the queue";
        } else {
            EXPECT_TRUE(one.cancelled) << to_string(done.status);
            EXPECT_TRUE(done.status == status::cancelled || one.lost || one.said) << to_string(done.status);
        }
        open_.erase(found);
    }

    template <typename Which>
    [[nodiscard]] bool waits(Which which) const {
        return std::ranges::any_of(open_, [&](const auto& each) {
            return each.second.at == nowhere && !each.second.cancelled && which(each.second);
        });
    }
    [[nodiscard]] std::size_t waiting() const {
        return static_cast<std::size_t>(
            std::ranges::count_if(open_, [](const auto& each) { return each.second.at == nowhere; }));
    }
    [[nodiscard]] bool is_free(std::size_t server) const {
        const polled_server& one = behind_[server];
        return one.serves && one.held.size() + one.taken.size() < one.slots;
    }
    [[nodiscard]] bool no_slot_is_idle() const {
        for (std::size_t i = 0; i < behind_.size(); ++i)
            if (is_free(i) && waits([i](const auto& each) { return each.returned_from != i; })) return false;
        return true;
    }
    /// Requests that were not given back go in the order in which they came.
    [[nodiscard]] bool no_request_is_passed() const {
        bool one_waits = false;
        for (const auto& [number, each] : open_) {
            if (each.returned_from != nowhere || each.cancelled) continue;
            if (each.at != nowhere && one_waits) return false;
            one_waits = one_waits || each.at == nowhere;
        }
        return true;
    }

    std::mt19937 random_;
    std::map<std::uint64_t, open_request> open_;
    std::uint64_t last_ = 0;
    bool looks_ = false;
    bool unknown_ = false;       ///< the forwarder has not looked since a slot became free without a completion
    std::uint64_t refused_ = 0;  ///< the last request for which there was no room
    context ctx_ = std::move(context::open({.log = log_level::off})).value();
    std::array<polled_server, 3> behind_;
    std::deque<gateway::upstream> servers_;
    gateway::reach_settings chosen_;
    std::vector<gateway::route> ways_{gateway::route{"", chosen_}};
    gateway::route& way_ = ways_.front();
    gateway::forwarder passing_{16, queue};
    std::unique_ptr<server> front_;
    std::vector<channel> clients_;
};

TEST(forwarder_sequences, each_request_has_one_answer_and_waits_no_longer_than_it_must) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(seed);
        sequence random(seed);
        for (int i = 0; i < effort(100); ++i) {
            random.step();
            ASSERT_TRUE(random.settles()) << "step " << i;
            if (::testing::Test::HasFailure()) return;
        }
        random.finish();
    }
}

}  // namespace
}  // namespace accel::tests
