// SPDX-License-Identifier: Apache-2.0
// Calls as operations of Asio: every completion token, the handler's executor, cancellation, and the context's end.
#include "client_rig.hpp"

#include <accel_transport/coro/asio.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<asio.hpp>)
#include <asio.hpp>
#include <asio/experimental/deferred.hpp>
#ifdef ASIO_HAS_CO_AWAIT
#include <asio/experimental/awaitable_operators.hpp>
#endif
#else
#include <boost/asio.hpp>
#include <boost/asio/experimental/deferred.hpp>
#ifdef BOOST_ASIO_HAS_CO_AWAIT
#include <boost/asio/experimental/awaitable_operators.hpp>
#endif
namespace asio = boost::asio;
#endif

namespace accel::tests {
namespace {

const std::string hello = "hello";

class on_asio : public client_rig {
  protected:
    /// Runs what is ready, until `done`.
    bool run_until(asio::io_context& loop, const std::function<bool()>& done) {
        return eventually(patience(10s), [&] {
            loop.restart();
            (void)loop.run_for(1ms);
            return done();
        });
    }

    shelf held;
};

[[nodiscard]] std::string said(const asio_answer& got) {
    return got.ok() ? text_of(got.bytes()) : std::string{to_string(got.status())};
}

TEST_P(on_asio, every_completion_token_gets_its_answer) {
    const server there = serve(place("asio-tokens"));
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    std::string by_callback;
    std::string later;
    calls.async_call(bytes_of(hello), [&](const asio_answer& got) { by_callback = said(got); });
    auto lazy = calls.async_call(bytes_of(hello), asio::experimental::deferred);
    std::future<asio_answer> promised = calls.async_call(bytes_of(hello), asio::use_future);
    EXPECT_TRUE(by_callback.empty()) << "a handler runs in the loop alone";
    loop.run();
    EXPECT_EQ(by_callback, hello);
    EXPECT_EQ(said(promised.get()), hello);
    std::move(lazy)([&](const asio_answer& got) { later = said(got); });
    loop.restart();
    loop.run();
    EXPECT_EQ(later, hello) << "and the loop had ended in between, as no call was under way";
}

TEST_P(on_asio, other_threads_call_and_give_slots_back) {
    const server there = serve(place("asio-threads"));
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    auto busy = asio::make_work_guard(loop);
    std::thread runner([&] { loop.run(); });
    std::atomic<int> good{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 6; ++i) {  // more than there are slots
            threads.emplace_back([&, i] {
                for (int call = 0; call < 20; ++call) {
                    const std::string text = std::to_string(i) + " " + std::to_string(call);
                    const asio_answer got = calls.async_call(bytes_of(text), asio::use_future).get();
                    good += said(got) == text;
                }
            });
        }
    }
    EXPECT_EQ(good, 120);
    busy.reset();
    runner.join();
}

TEST_P(on_asio, a_handler_runs_on_its_own_executor) {
    const server there = serve(place("asio-executor"));
    asio::io_context loop{1};
    asio::io_context own{1};
    asio_calls calls{asio::make_strand(loop), connect_to(there)};
    std::string seen;
    std::optional<asio_answer> kept;
    calls.async_call(bytes_of(hello), asio::bind_executor(own, [&](asio_answer got) {
                         seen = said(got);
                         kept.emplace(std::move(got));
                     }));
    loop.run();
    EXPECT_TRUE(seen.empty());
    EXPECT_EQ(own.run(), 1U);
    EXPECT_EQ(seen, hello);
    kept.reset();
    loop.restart();
    std::vector<asio_answer> all;
    for (int i = 0; i < 4; ++i)
        calls.async_call(bytes_of(hello), [&](asio_answer got) { all.push_back(std::move(got)); });
    ASSERT_TRUE(run_until(loop, [&] { return all.size() == 4; })) << "its slot has not come back";
    for (const asio_answer& each : all) EXPECT_EQ(said(each), hello);
}

TEST_P(on_asio, a_cancelled_operation_cancels_its_call) {
    const server there = serve(place("asio-cancel"), held.keeper());
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    std::vector<std::string> ended(6);  // four in flight, and two that wait for a slot
    std::vector<asio::cancellation_signal> signals(ended.size());
    for (std::size_t i = 0; i < ended.size(); ++i) {
        calls.async_call(bytes_of(hello),
                         asio::bind_cancellation_slot(signals[i].slot(),
                                                      [&ended, i](const asio_answer& got) { ended[i] = said(got); }));
    }
    ASSERT_TRUE(run_until(loop, [&] { return held.size() == 4; }));
    signals[0].emit(asio::cancellation_type::total);
    signals[1].emit(asio::cancellation_type::terminal);
    signals[5].emit(asio::cancellation_type::partial);
    ASSERT_TRUE(run_until(loop, [&] { return !ended[1].empty() && !ended[5].empty(); }));
    EXPECT_EQ(ended, (std::vector<std::string>{"", "cancelled", "", "", "", "cancelled"}));
    const auto cancelled = [&] {
        return held.with_all([](const auto& all) { return std::ranges::count_if(all, &exchange::cancelled); });
    };
    EXPECT_TRUE(run_until(loop, [&] { return cancelled() == 1; }));
    ASSERT_TRUE(run_until(loop, [&] {
        held.answer_all();
        return std::ranges::none_of(ended, &std::string::empty);
    }));
    EXPECT_EQ(ended, (std::vector<std::string>{hello, "cancelled", hello, hello, hello, "cancelled"}));
    signals[2].emit(asio::cancellation_type::terminal);  // of an operation that has ended: nothing
    loop.restart();
    (void)loop.run();
}

/// Sends "0" to "2" as parts, and then "end".
void send_three(exchange one) {
    for (int i = 0; i < 3; ++i) (void)one.send(bytes_of(std::to_string(i)));
    std::memcpy(one.response().data(), "end", 3);
    (void)one.reply(3);
}

TEST_P(on_asio, a_stream_gives_its_parts_in_order) {
    const server there = serve(place("asio-parts"), send_three);
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    for (int round = 0; round < 2; ++round) {
        std::vector<std::string> got;
        asio_stream parts = calls.parts(bytes_of(hello), {.parts = 3});
        const std::function<void(const asio_answer&)> on_part = [&](const asio_answer& part) {
            got.push_back(said(part));
            if (part.more()) parts.async_next(on_part);
        };
        parts.async_next(on_part);
        loop.restart();
        loop.run();
        EXPECT_EQ(got, (std::vector<std::string>{"0", "1", "2", "end"}));
    }
}

TEST_P(on_asio, a_stream_sends_its_request_in_parts) {
    std::jthread handling;
    const server there = serve(place("asio-request-parts"), [&](exchange one) {
        handling = std::jthread([open = std::move(one)]() mutable {
            std::string all = text_of(open.request());
            while (const request_part part = open.receive(patience(10s))) all += text_of(part.bytes());
            std::memcpy(open.response().data(), all.data(), all.size());
            (void)open.reply(all.size());
        });
    });
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    std::string got;
    int sent = 0;
    asio_stream upload = calls.parts(bytes_of("0"), {.continues = true});
    upload.async_next([&](const asio_answer& end) { got = said(end); });
    const std::function<void(const asio_answer&)> on_sent = [&](const asio_answer& part) {
        EXPECT_TRUE(part.ok());
        if (++sent < 20)
            upload.async_send(bytes_of("1"), on_sent);
        else if (sent == 20)
            upload.async_finish(bytes_of("2"), on_sent);
    };
    upload.async_send(bytes_of("1"), on_sent);
    loop.run();
    EXPECT_EQ(got, "0" + std::string(20, '1') + "2");
}

#if defined(ASIO_HAS_CO_AWAIT) || defined(BOOST_ASIO_HAS_CO_AWAIT)
TEST_P(on_asio, coroutines_await_calls_and_time_out_by_an_operator) {
    using namespace asio::experimental::awaitable_operators;
    const server there = serve(place("asio-await"), [this](exchange one) {
        text_of(one.request()) == hello ? echo_back(std::move(one)) : held.keeper()(std::move(one));
    });
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    std::string first;
    std::size_t winner = 0;
    const auto wait = [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(loop, patience(20ms));
        first = said(co_await calls.async_call(bytes_of(hello), asio::use_awaitable));
        const std::string other = "is kept";
        const auto outcome =
            co_await (calls.async_call(bytes_of(other), asio::use_awaitable) || timer.async_wait(asio::use_awaitable));
        winner = outcome.index();
    };
    asio::co_spawn(loop, wait(), asio::detached);
    loop.run();
    EXPECT_EQ(first, hello);
    EXPECT_EQ(winner, 1U) << "and the call was cancelled, or the loop would still run";
    held.drop_all();
}
#endif

TEST_P(on_asio, a_destroyed_stream_cancels_its_call_and_ends_who_waits) {
    const server there = serve(place("asio-stream"), held.keeper());
    asio::io_context loop{1};
    asio_calls calls{loop, connect_to(there)};
    std::string seen;
    {
        asio_stream parts = calls.parts(bytes_of(hello), {.parts = 1});
        parts.async_next([&](const asio_answer& got) { seen = said(got); });
        ASSERT_TRUE(run_until(loop, [&] { return held.size() == 1; }));
        EXPECT_TRUE(seen.empty());
    }
    EXPECT_TRUE(run_until(loop, [&] { return seen == "cancelled"; }));
    EXPECT_TRUE(
        run_until(loop, [&] { return held.with_all([](const auto& all) { return all.front().cancelled(); }); }));
    held.drop_all();
}

TEST_P(on_asio, close_ends_operations_that_wait) {
    const server there = serve(place("asio-close"), held.keeper());
    asio::io_context loop{1};
    std::optional<asio_calls> calls(std::in_place, loop, connect_to(there));
    std::vector<std::string> ended;
    for (int i = 0; i < 6; ++i)
        calls->async_call(bytes_of(hello), [&](const asio_answer& got) { ended.push_back(said(got)); });
    ASSERT_TRUE(run_until(loop, [&] { return held.size() == 4; }));
    calls.reset();
    loop.restart();
    loop.run();
    EXPECT_EQ(ended, std::vector<std::string>(6, "closed"));
    held.drop_all();
}

TEST_P(on_asio, a_context_that_ends_destroys_handlers_that_wait) {
    const server there = serve(place("asio-end"), held.keeper());
    const auto in_use = std::make_shared<int>(0);
    {
        asio::io_context loop{1};
        auto calls = std::make_shared<asio_calls>(loop, connect_to(there));
        for (int i = 0; i < 6; ++i)
            calls->async_call(bytes_of(hello), [in_use, calls](const asio_answer&) { ++*in_use; });
        ASSERT_TRUE(run_until(loop, [&] { return held.size() == 4; }));
        calls.reset();  // the handlers have the rest
        EXPECT_EQ(in_use.use_count(), 7);
    }
    EXPECT_EQ(in_use.use_count(), 1);
    EXPECT_EQ(*in_use, 0);
    held.drop_all();
}

ACCEL_OVER_EVERY_TRANSPORT(on_asio);

}  // namespace
}  // namespace accel::tests
