// SPDX-License-Identifier: Apache-2.0
/// Calls as operations of Asio, beside its own, on one io_context: awaited, with a time limit, and with a callback.
/// Against hello_server: coro_asio 'tcp://127.0.0.1:5555?insecure=true' 100
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/coro/asio.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#if __has_include(<asio.hpp>)
#include <asio.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#else
#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
namespace asio = boost::asio;
#endif

namespace {

using namespace std::chrono_literals;
using asio::use_awaitable;

constexpr std::string_view question = "are you there?";

int fail(std::string_view why) {
    std::fprintf(stderr, "coro_asio: %.*s\n", static_cast<int>(why.size()), why.data());
    return 1;
}

bool is_good(const accel::asio_answer& got) {
    return got.ok() && got.bytes().size() == question.size();
}

asio::awaitable<void> talk(accel::asio_calls& calls, int questions, int& good) {
    using namespace asio::experimental::awaitable_operators;
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < questions; ++i) {
        timer.expires_after(1ms);
        if (i % 10 == 0) co_await timer.async_wait(use_awaitable);
        // Whichever ends first cancels the other.
        timer.expires_after(10s);
        const auto first = co_await (calls.async_call(std::as_bytes(std::span{question}), use_awaitable) ||
                                     timer.async_wait(use_awaitable));
        good += first.index() == 0 && is_good(std::get<0>(first));
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int questions = argc > 2 ? std::atoi(argv[2]) : 100;
    auto context = accel::context::open();
    if (!context) return fail(context.error().message);
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error().message);

    asio::io_context loop{1};
    accel::asio_calls calls{loop, std::move(*channel)};
    int good = 0;
    asio::co_spawn(loop, talk(calls, questions - 1, good), asio::detached);
    calls.async_call(std::as_bytes(std::span{question}), [&](const accel::asio_answer& got) { good += is_good(got); });
    loop.run();  // until no call is under way
    std::printf("%d answers\n", good);
    return good == questions ? 0 : fail("some calls failed");
}
