// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/servers/backend.hpp"
#include "serving/models/loaded_models.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Servers of one model behind the doors, and who calls them.
namespace accel::examples::serving::doors {

using namespace std::chrono_literals;

/// Keeps what it got.
class waiting_caller final : public caller {
  public:
    void on_slot(status got, const call_slot& slot) override {
        said = got;
        if (got == status::ok) held.push_back(slot);
    }
    void on_answer(door_channel& on, const completion& answer) override {
        ++answers;
        on.release(answer.id);
    }

    [[nodiscard]] std::span<const metadata_entry> metadata() const override { return sends; }

    std::vector<metadata_entry> sends;
    status said = status::again;
    std::vector<call_slot> held;
    int answers = 0;
};

inline status send(const call_slot& from, std::size_t length, const std::shared_ptr<caller>& who) {
    return from.on->submit(from.id, length, usual_options, who);
}

/// As the server itself ends calls.
inline completion ended(status with, std::uint32_t code = unseen_code) {
    completion out;
    out.status = with;
    out.code = code;
    return out;
}

/// So many servers of the model "m", each with one channel. Those that `tell` say what they have loaded.
class backend_rig {
  public:
    explicit backend_rig(int servers, std::uint32_t slots = 8, std::size_t most_kept = 1'000, bool tell = false)
        : backend_rig(servers, {.channels = 1, .slots = slots}, most_kept, tell) {}
    backend_rig(int servers, const gateway::reach_settings& reach, std::size_t most_kept = 1'000, bool tell = false)
        : ctx_(context::open({.log = log_level::off}).value()), all_(loop_, reach, most_kept) {
        for (int i = 0; i < servers; ++i) {
            const std::string uri = "local://doors-backend-" + std::to_string(next_name++);
            const handler service = [this](exchange one) {
                ++requests_;
                if (!holds_) return void(one.reply(0));
                const std::lock_guard lock(mutex_);
                held_.push_back(std::move(one));
            };
            service_table services{.named = {{"m", service}}, .unnamed = service};
            if (tell) services.named.push_back({std::string{loaded_models_target}, [this](exchange one) { say(one); }});
            servers_.push_back(server::listen(ctx_, {uri}, services).value());
            ups_.push_back(&all_.add_server(gateway::upstream(uri, {})));
        }
        model_ = &all_.add(ups_, target_of("m"));
        EXPECT_TRUE(all_.open(ctx_).ok());
        EXPECT_TRUE(run_until([&] { return model_->connected_servers() == ups_.size(); }));
    }

    [[nodiscard]] backend& model() { return *model_; }
    [[nodiscard]] int requests() const { return requests_; }
    [[nodiscard]] std::size_t server_of(const call_slot& slot) const {
        for (std::size_t i = 0; i < ups_.size(); ++i)
            if (ups_[i] == &slot.on->server()) return i;
        return ups_.size();
    }
    /// Calls that have a slot.
    [[nodiscard]] std::uint32_t in_flight() const {
        std::uint32_t sum = 0;
        for (const gateway::upstream* each : ups_) sum += each->in_flight();
        return sum;
    }
    /// From now on nothing is answered.
    void hold() { holds_ = true; }
    void answer_held() {
        holds_ = false;
        const std::lock_guard lock(mutex_);
        for (exchange& each : held_) (void)each.reply(0);
        held_.clear();
    }
    /// All servers that tell say so from now on.
    void set_loaded(bool has) { loaded_ = has; }
    [[nodiscard]] int questions() const { return questions_; }
    void lose(std::size_t server) {
        for (gateway::line& each : ups_[server]->lines()) each.path.close();
    }
    /// A call with a slot, or one that waits.
    std::shared_ptr<waiting_caller> ask(slot_wish wish = {}, std::vector<metadata_entry> metadata = {}) {
        auto who = std::make_shared<waiting_caller>();
        who->sends = std::move(metadata);
        model_->ask_slot(who, wish);
        return who;
    }
    void run_ready() {
        loop_.poll();
        loop_.restart();
    }
    void run_for(std::chrono::milliseconds time) { loop_.run_for(time); }
    template <typename Done>
    bool run_until(Done done) {
        const auto until = std::chrono::steady_clock::now() + 20s;
        while (!done() && std::chrono::steady_clock::now() < until) loop_.run_for(5ms);
        return done();
    }

  private:
    void say(exchange& one) {
        ++questions_;
        const std::uint32_t number = target_of("m").number;
        std::memcpy(one.response().data(), &number, sizeof number);
        (void)one.reply(loaded_ ? sizeof number : 0);
    }

    static inline std::atomic<int> next_name{0};

    std::atomic<int> requests_{0};
    std::atomic<int> questions_{0};
    std::atomic<bool> loaded_{true};
    std::atomic<bool> holds_{false};
    std::mutex mutex_;
    std::vector<exchange> held_;
    context ctx_;
    std::vector<server> servers_;
    boost::asio::io_context loop_{1};
    backends all_;
    std::vector<gateway::upstream*> ups_;
    backend* model_ = nullptr;
};

}  // namespace accel::examples::serving::doors
