// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include "core/internals.hpp"
#include "core/log_ring.hpp"
#include "core/log_sink.hpp"
#include "patience.hpp"

#include <accel_transport/context.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tests::patience;

struct told {
    log_level level;
    std::string text;
};

/// What sinks were told.
class notebook {
  public:
    [[nodiscard]] log_function writer() {
        return [this](log_level level, std::string_view line) {
            const std::lock_guard lock{mutex_};
            lines_.push_back({level, std::string{line}});
        };
    }
    [[nodiscard]] std::vector<std::string> texts() {
        EXPECT_TRUE(flush_log(patience(20s)));
        const std::lock_guard lock{mutex_};
        std::vector<std::string> all;
        for (const told& each : lines_) all.push_back(each.text);
        return all;
    }
    [[nodiscard]] std::vector<told> lines() {
        EXPECT_TRUE(flush_log(patience(20s)));
        const std::lock_guard lock{mutex_};
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::vector<told> lines_;
};

/// A sink that does not come back until it is released.
class stuck_sink {
  public:
    [[nodiscard]] log_function writer() {
        return [this](log_level, std::string_view line) {
            std::unique_lock lock{mutex_};
            lines_.emplace_back(line);
            entered_.store(true);
            changed_.wait(lock, [this] { return free_; });
        };
    }
    void wait_until_stuck() {
        log().warn("the sink is stuck at this line");
        ASSERT_TRUE(tests::eventually(patience(20s), [this] { return entered_.load(); }));
    }
    void release() {
        const std::lock_guard lock{mutex_};
        free_ = true;
        changed_.notify_all();
    }
    [[nodiscard]] std::vector<std::string> texts() {
        const std::lock_guard lock{mutex_};
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> lines_;
    std::atomic<bool> entered_{false};
    bool free_ = false;
};

/// Counts how often it is formatted.
struct counted_value {
    int* count;
};

class log_test : public ::testing::Test {
  protected:
    /// Lines of earlier tests would reach this one's sink.
    log_test() { EXPECT_TRUE(flush_log(patience(20s))); }
    ~log_test() override { log().set_level(log_level::warning); }
    static context open_with(log_function sink, log_level level = log_level::warning) {
        context_options options;
        options.log = level;
        options.log_sink = std::move(sink);
        return context::open(options).value();
    }
    notebook seen;
};

}  // namespace
}  // namespace accel::core

template <>
struct fmt::formatter<accel::core::counted_value> {
    constexpr auto parse(format_parse_context& in) { return in.begin(); }
    template <class Context>
    auto format(const accel::core::counted_value& value, Context& out) const {
        ++*value.count;
        return out.out();
    }
};

namespace accel::core {
namespace {

/// Cannot be formatted.
struct faulty_value {};

}  // namespace
}  // namespace accel::core

template <>
struct fmt::formatter<accel::core::faulty_value> {
    constexpr auto parse(format_parse_context& in) { return in.begin(); }
    template <class Context>
    auto format(const accel::core::faulty_value&, Context& out) const -> decltype(out.out()) {
        throw std::runtime_error{"cannot be formatted"};
    }
};

namespace accel::core {
namespace {

TEST_F(log_test, a_sink_gets_level_and_text_in_order) {
    const context one = open_with(seen.writer(), log_level::debug);
    log().debug("a {}", 1);
    log().info("b {}", "two");
    log().warn("c");
    log().error("d {:#x}", 255);
    log().log(log_level::info, "e");
    EXPECT_THAT(seen.texts(), ElementsAre("a 1", "b two", "c", "d 0xff", "e"));
    const std::vector<log_level> levels{log_level::debug, log_level::info, log_level::warning, log_level::error,
                                        log_level::info};
    for (std::size_t i = 0; i < levels.size(); ++i) EXPECT_EQ(seen.lines()[i].level, levels[i]);
}

TEST_F(log_test, a_disabled_level_is_neither_formatted_nor_logged) {
    const context one = open_with(seen.writer());
    int formatted = 0;
    log().info("{}", counted_value{&formatted});
    limited_log("peer").info("{}", counted_value{&formatted});
    EXPECT_EQ(formatted, 0);
    log().warn("{}", counted_value{&formatted});
    EXPECT_EQ(formatted, 1);
    EXPECT_THAT(seen.texts(), SizeIs(1));
    log().set_level(log_level::off);
    log().error("nothing");
    EXPECT_THAT(seen.texts(), SizeIs(1));
}

TEST_F(log_test, a_line_that_is_too_long_is_cut) {
    const context one = open_with(seen.writer());
    log().warn("{}", std::string(5'000, 'x'));
    log().warn("next");
    const auto texts = seen.texts();
    ASSERT_THAT(texts, SizeIs(2));
    EXPECT_LE(texts[0].size(), log_line::max_bytes);
    EXPECT_TRUE(texts[0].ends_with("xxx..."));
    EXPECT_EQ(texts[1], "next");
}

TEST_F(log_test, a_peer_cannot_write_lines_of_its_own) {
    const context one = open_with(seen.writer());
    log().warn("refused '{}'", "a\n2026-01-01 [accel] error: \x1b[2J\x7f\t\xc3\xa9");
    EXPECT_THAT(seen.texts(), ElementsAre("refused 'a?2026-01-01 [accel] error: ?[2J??\xc3\xa9'"));
}

TEST_F(log_test, a_value_that_cannot_be_formatted_leaves_the_text) {
    const context one = open_with(seen.writer());
    log().warn("it is {}", faulty_value{});
    EXPECT_THAT(seen.texts(), ElementsAre("it is {}"));
}

/// A context with a sink, and what that has to be told.
struct open_sink {
    std::unique_ptr<notebook> book = std::make_unique<notebook>();
    std::shared_ptr<int> held = std::make_shared<int>(0);  ///< by the sink
    std::vector<std::string> expected;
    std::optional<context> of;
    std::shared_ptr<context_state> state;  ///< which others may keep
};

/// Contexts are opened, moved and destroyed in random order. The end of one waits for its lines only a short time, and
/// a new sink gets lines that wait; so each step ends with the last line written.
TEST_F(log_test, each_sink_gets_the_lines_logged_while_its_context_lives) {
    std::mt19937 random(1);
    const context quiet = open_with([](log_level, std::string_view) {});
    std::vector<open_sink> sinks;
    for (int step = 0; step < 300; ++step) {
        const std::size_t at = sinks.empty() ? 0 : random() % sinks.size();
        const auto what = random() % 8;
        if (what == 0 && sinks.size() < 4) {
            open_sink& made = sinks.emplace_back();
            made.of =
                open_with([to = made.book->writer(), held = made.held](auto level, auto line) { to(level, line); });
            if (random() % 2 == 0) made.state = internals::state_of(*made.of);
        } else if (what == 1 && !sinks.empty()) {
            sinks[at].of.reset();
            EXPECT_EQ(sinks[at].held.use_count(), 1) << "its sink is destroyed";
            log().warn("after its end");
            for (open_sink& each : sinks)
                if (each.of) each.expected.emplace_back("after its end");
            EXPECT_EQ(sinks[at].book->texts(), sinks[at].expected);
            sinks.erase(sinks.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (what == 2 && !sinks.empty()) {
            context moved = std::move(*sinks[at].of);
            sinks[at].of.emplace(std::move(moved));
        } else if (what == 3 && sinks.size() > 1 && at > 0) {
            *sinks[0].of = std::move(*sinks[at].of);  // which ends the first one's own
            EXPECT_EQ(sinks[0].held.use_count(), 1);
            EXPECT_EQ(sinks[0].book->texts(), sinks[0].expected);
            sinks[at].of = std::move(sinks[0].of);
            sinks.erase(sinks.begin());
        } else {
            log().warn("line {}", step);
            for (open_sink& each : sinks) each.expected.push_back(fmt::format("line {}", step));
        }
        ASSERT_TRUE(flush_log(patience(20s)));
    }
    for (open_sink& each : sinks) EXPECT_EQ(each.book->texts(), each.expected);
}

TEST_F(log_test, a_sink_gets_no_lines_after_its_context) {
    std::atomic<int> calls{0};
    std::atomic<bool> gone{false};
    std::atomic<int> late{0};
    std::atomic<bool> stop{false};
    std::thread noisy([&] {
        while (!stop) {
            log().warn("a line while contexts come and go");
            std::this_thread::sleep_for(20us);
        }
    });
    notebook others;  // takes what would go to standard error
    const context quiet = open_with(others.writer());
    for (int i = 0; i < 50; ++i) {
        gone = false;
        {
            const context one = open_with([&](log_level, std::string_view) {
                ++calls;
                late += gone ? 1 : 0;
            });
            std::this_thread::sleep_for(500us);
            log().warn("this one as well");
        }
        gone = true;
        std::this_thread::sleep_for(200us);
    }
    stop = true;
    noisy.join();
    EXPECT_TRUE(flush_log(patience(20s)));
    EXPECT_EQ(late, 0);
    EXPECT_GT(calls, 0);  // each end of a context waits a short time only
}

TEST_F(log_test, a_sink_may_throw) {
    const context one = open_with([](log_level, std::string_view) { throw std::runtime_error{"no"}; });
    const context two = open_with(seen.writer());
    log().warn("a");
    log().warn("b");
    EXPECT_THAT(seen.texts(), ElementsAre("a", "b"));
}

TEST_F(log_test, a_sink_may_log_and_end_its_own_context) {
    std::optional<context> own;
    std::atomic<int> calls{0};
    const context other = open_with(seen.writer());
    own = open_with([&](log_level, std::string_view) {
        if (++calls > 1) return;
        log().warn("from the sink");
        own.reset();
    });
    log().warn("first");
    EXPECT_TRUE(tests::eventually(patience(20s), [&] { return calls == 1; }));
    EXPECT_THAT(seen.texts(), ElementsAre("first", "from the sink"));
    EXPECT_EQ(calls, 1);
}

TEST_F(log_test, a_flood_into_a_stuck_sink_blocks_no_thread_and_is_counted) {
    constexpr int threads = 4;
    constexpr int lines = 100'000;
    stuck_sink slow;
    const context one = open_with(slow.writer());
    ASSERT_NO_FATAL_FAILURE(slow.wait_until_stuck());
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
        all.emplace_back([i] {
            for (int k = 0; k < lines; ++k) log().warn("line {} of thread {}", k, i);
        });
    }
    for (auto& each : all) each.join();
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, patience(10s));
    RecordProperty("nanoseconds_a_line", static_cast<int>(took / 1ns / (threads * lines)));
    EXPECT_FALSE(flush_log(1ms)) << "nothing can be written";
    slow.release();
    ASSERT_TRUE(flush_log(patience(20s)));

    std::uint64_t told = 0;
    std::uint64_t dropped = 0;
    for (const std::string& each : slow.texts()) {
        const bool notice = each.find("were dropped") != std::string::npos;
        if (notice)
            dropped += std::stoull(each);
        else
            ++told;
    }
    EXPECT_EQ(told + dropped, std::uint64_t{threads * lines + 1}) << "each is told or counted";
    EXPECT_LE(told, log_ring::capacity) << "the memory is bounded";
    EXPECT_GT(told, log_ring::capacity / 2);
}

TEST_F(log_test, the_count_of_lost_lines_precedes_the_next_line) {
    stuck_sink slow;
    const context one = open_with(slow.writer());
    ASSERT_NO_FATAL_FAILURE(slow.wait_until_stuck());
    for (std::uint64_t i = 1; i < log_ring::capacity + 5; ++i) log().warn("flood");
    slow.release();
    ASSERT_TRUE(flush_log(patience(20s)));
    log().warn("the next");
    ASSERT_TRUE(flush_log(patience(20s)));
    const auto texts = slow.texts();
    ASSERT_GE(texts.size(), 2U);
    EXPECT_THAT(texts[texts.size() - 2], HasSubstr("5 log lines were dropped"));
    EXPECT_EQ(texts.back(), "the next");
}

TEST_F(log_test, no_line_is_lost_or_out_of_order_while_there_is_room) {
    constexpr int rounds = 200;
    constexpr int threads = 4;
    const context one = open_with(seen.writer());
    for (int i = 0; i < rounds; ++i) {
        std::vector<std::thread> all;
        for (int k = 0; k < threads; ++k) all.emplace_back([=] { log().warn("{} {}", k, i); });
        for (auto& each : all) each.join();
    }
    std::vector<int> next(threads, 0);
    for (const std::string& each : seen.texts()) {
        const auto thread = static_cast<std::size_t>(each.at(0) - '0');
        EXPECT_EQ(std::stoi(each.substr(2)), next[thread]++);
    }
    EXPECT_THAT(next, ElementsAre(rounds, rounds, rounds, rounds));
}

TEST_F(log_test, lines_caused_by_a_peer_are_limited_and_the_rest_is_counted) {
    const context one = open_with(seen.writer());
    const auto refuse = [](const std::string& peer, int times) {
        for (int i = 0; i < times; ++i) limited_log(peer).warn("refused {}", peer);
    };
    refuse("flood", 100'000);
    refuse("calm", 1);
    // Seconds of the clock may change meanwhile, and with each the flood gets ten lines again.
    const auto texts = seen.texts();
    const auto calm =
        std::count_if(texts.begin(), texts.end(), [](const auto& each) { return each.starts_with("refused calm"); });
    EXPECT_EQ(calm, 1);
    EXPECT_LT(texts.size(), 500U);
    std::uint64_t unsaid = 0;
    for (const std::string& each : texts) {
        const auto at = each.find(" (");
        if (at == std::string::npos) continue;
        EXPECT_THAT(each, HasSubstr(" more like this were not logged)"));
        unsaid += std::stoull(each.substr(at + 2));
    }
    EXPECT_EQ(unsaid + texts.size(), 100'001U) << "each is told or counted";
}

}  // namespace
}  // namespace accel::core
