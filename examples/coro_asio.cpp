// SPDX-License-Identifier: Apache-2.0
/// Awaited calls beside Asio's own operations, on one io_context: Boost.Asio or the standalone library.
/// Against hello_server: coro_asio 'tcp://127.0.0.1:5555?insecure=true' 100
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/coro.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#if __has_include(<asio.hpp>)
#include <asio.hpp>
#else
#include <boost/asio.hpp>
namespace asio = boost::asio;
#endif

namespace {

int fail(std::string_view why) {
    std::fprintf(stderr, "coro_asio: %.*s\n", static_cast<int>(why.size()), why.data());
    return 1;
}

/// A call as an asynchronous operation of Asio: for `use_awaitable`, callbacks and every other completion token.
template <class Token>
auto async_call(accel::coro::calls& calls, std::span<const std::byte> request, Token&& token) {
    return asio::async_initiate<Token, void(accel::coro::answer)>(
        [&calls, request](auto handler) {
            [](accel::coro::calls& to, std::span<const std::byte> bytes, auto done) -> accel::coro::detached {
                accel::coro::answer got = co_await to.call(bytes);
                std::move(done)(std::move(got));
            }(calls, request, std::move(handler));
        },
        token);
}

/// Polls whenever the channel's descriptor is readable, until `over`.
asio::awaitable<void> drive(accel::coro::calls& calls, const bool& over) {
    asio::posix::stream_descriptor events(co_await asio::this_coro::executor, dup(calls.event_fd()));
    while (!over) {
        // Sleep only when `arm` says that nothing is ready; else poll again. Calls end inside `poll`.
        if (calls.poll() > 0 || !calls.arm()) continue;
        if (!over) co_await events.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
    }
}

asio::awaitable<void> talk(accel::coro::calls& calls, int questions, int& good, bool& over) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    const std::string question = "are you there?";
    for (int i = 0; i < questions; ++i) {
        pause.expires_after(std::chrono::milliseconds{1});
        if (i % 10 == 0) co_await pause.async_wait(asio::use_awaitable);
        const auto got = co_await async_call(calls, std::as_bytes(std::span{question}), asio::use_awaitable);
        good += got.ok() && got.bytes().size() == question.size();
    }
    over = true;  // within `poll`, after the last answer, so that `drive` notices
}

}  // namespace

int main(int argc, char** argv) {
    const int questions = argc > 2 ? std::atoi(argv[2]) : 100;
    auto context = accel::context::open();
    if (!context) return fail(context.error().message);
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error().message);
    accel::coro::calls calls{std::move(*channel)};

    asio::io_context loop{1};
    int good = 0;
    bool over = false;
    asio::co_spawn(loop, talk(calls, questions, good, over), asio::detached);
    asio::co_spawn(loop, drive(calls, over), asio::detached);
    loop.run();
    std::printf("%d answers\n", good);
    return good == questions ? 0 : fail("some calls failed");
}
