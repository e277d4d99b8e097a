// SPDX-License-Identifier: Apache-2.0
// How a worker's thread sleeps: while a handler's answer may come from another thread, where it hears of it at once.
#include "core/server/worker.hpp"
#include "patience.hpp"
#include "unit/scripted_link.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;
using tests::eventually;
using tests::patience;

constexpr link_geometry one_slot{1, 64, 64};

/// Counts sleeps of either kind, and has one request when told so.
class sleeping_poller final : public poller {
  public:
    explicit sleeping_poller(void* owner) : owner_(owner) {}
    result<std::unique_ptr<link>> open_link(const link_config&) override {
        return error{status::unsupported, 0, "there is one link"};
    }
    std::size_t poll(std::span<link_event> out) noexcept override {
        if (!asked.exchange(false)) return 0;
        out[0] = {};
        out[0].owner = owner_;
        out[0].header.generation = 1;
        out[0].header.response_room = 64;
        out[0].header.deadline_ns = never.count();
        return 1;
    }
    int event_fd() const noexcept override { return -1; }
    bool arm() noexcept override { return true; }
    bool sleep(int other_fd, nanoseconds) noexcept override {
        ++sleeps;
        pollfd heard{other_fd, POLLIN, 0};
        return ::poll(&heard, 1, 1) == 1;
    }
    bool doze(int, nanoseconds) noexcept override {
        ++dozes;
        std::this_thread::sleep_for(1ms);
        return false;
    }
    std::atomic<bool> asked{false};
    std::atomic<int> sleeps{0};
    std::atomic<int> dozes{0};

  private:
    void* owner_;
};

TEST(worker_sleep, a_worker_dozes_only_while_no_exchange_is_open) {
    std::optional<exchange> held;
    std::atomic<bool> open{false};
    server_options options;
    options.poll = poll_mode::block;
    auto* const serving = new worker(nullptr, options, [&](exchange one) {
        held.emplace(std::move(one));
        open = true;
    });
    auto made = std::make_unique<session>(*serving, 1, "test", client_identity{"", "peer"}, one_slot);
    auto source = std::make_unique<sleeping_poller>(made.get());
    sleeping_poller& seen = *source;
    made->set_link(
        std::make_unique<scripted_link>(slot_memory::create(1, 64).value(), slot_memory::create(1, 64).value()));
    serving->add_source(std::move(source));
    serving->install(std::move(made));
    serving->start();

    EXPECT_TRUE(eventually(patience(5s), [&] { return seen.dozes > 3; }));
    EXPECT_EQ(seen.sleeps, 0);
    seen.asked = true;
    ASSERT_TRUE(eventually(patience(5s), [&] { return open && seen.sleeps > 0; }));
    const int before = seen.dozes;
    const int slept = seen.sleeps;
    EXPECT_TRUE(eventually(patience(5s), [&] { return seen.sleeps > slept + 3; }));
    EXPECT_EQ(seen.dozes, before) << "nobody could wake it";
    EXPECT_EQ(held->reply(std::size_t{0}), status::ok);
    EXPECT_TRUE(eventually(patience(5s), [&] { return seen.dozes > before; }));
    held.reset();
    serving->stop();
    serving->release_ref();
}

}  // namespace
}  // namespace accel::core
