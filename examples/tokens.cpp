// SPDX-License-Identifier: Apache-2.0
/// A server that answers token by token, and a client that prints each as it comes: tokens [URI [WORDS...]]
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using namespace std::chrono_literals;

/// Blocks a thread that makes tokens until the client has read one.
class room_for_tokens : exchange::part_waiter {
  public:
    room_for_tokens() : part_waiter{&room_for_tokens::notify} {}
    /// False: nobody waits for tokens any more. `stop`: of the exchange.
    bool wait(exchange& request, const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        if (pending_ || !request.await_part(*this)) {
            pending_ = true;
            pending_ = !changed_.wait(lock, stop, [this] { return std::exchange(there_, false); });
        }
        return !stop.stop_requested();
    }
    /// Before this is destroyed, and after the answer: the library may still hold it.
    void finish() {
        std::unique_lock lock(mutex_);
        if (pending_) changed_.wait(lock, [this] { return there_; });
    }

  private:
    static void notify(part_waiter& self) noexcept {
        auto& own = static_cast<room_for_tokens&>(self);
        const std::lock_guard lock(own.mutex_);
        own.there_ = true;
        own.changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable_any changed_;
    bool there_ = false;
    bool pending_ = false;
};

/// The model: says each word of the prompt backwards.
std::optional<std::string> next_token(std::istringstream& prompt) {
    std::string word;
    if (!(prompt >> word)) return std::nullopt;
    std::ranges::reverse(word);
    std::this_thread::sleep_for(1ms);
    return word;
}

void generate(exchange request) {
    const auto asked = request.request();
    std::istringstream prompt(std::string(reinterpret_cast<const char*>(asked.data()), asked.size()));
    const std::stop_token stop = request.stop_token();
    room_for_tokens room;
    std::size_t sent = 0;
    while (const auto token = next_token(prompt)) {
        status outcome = request.send(std::as_bytes(std::span(*token)));
        while (outcome == status::again && room.wait(request, stop))
            outcome = request.send(std::as_bytes(std::span(*token)));
        if (outcome != status::ok) break;  // nobody waits for the rest
        ++sent;
    }
    const std::string summary = std::to_string(sent) + " tokens";
    const std::size_t length = std::min(summary.size(), request.response().size());
    std::memcpy(request.response().data(), summary.data(), length);
    request.reply(length);
    room.finish();
}

/// Threads that make tokens, so that the server's worker goes on serving.
class generators {
  public:
    handler service() {
        return [this](exchange request) {
            if (!request.in_parts()) {
                request.fail(status::invalid_argument, 0, "ask with submit_options::parts");
                return;
            }
            const std::lock_guard lock(mutex_);
            threads_.emplace_back([one = std::move(request)]() mutable { generate(std::move(one)); });
        };
    }

  private:
    std::mutex mutex_;
    std::vector<std::jthread> threads_;
};

std::string_view text_of(const completion& c) {
    return {reinterpret_cast<const char*>(c.response.data()), c.response.size()};
}

int ask(channel& server, std::string_view prompt) {
    call_view call;
    if (server.begin(call) != status::ok || prompt.size() > call.request.size()) return 1;
    std::memcpy(call.request.data(), prompt.data(), prompt.size());
    if (server.submit(call.id, prompt.size(), {.parts = 2, .part_timeout = 5s}) != status::ok) return 1;
    for (;;) {
        completion c;
        if (server.wait({&c, 1}, 10s) == 0) return 1;
        std::printf(c.more ? "%.*s " : "(%.*s)\n", static_cast<int>(text_of(c).size()), text_of(c).data());
        std::fflush(stdout);
        server.release(c.id);
        if (!c.more) return c.status == status::ok ? 0 : 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::string prompt = "olleh dlrow morf a ledom";
    if (argc > 2) prompt.clear();
    for (int i = 2; i < argc; ++i) prompt += std::string(argv[i]) + " ";

    auto ctx = context::open().value();
    generators models;
    auto listening = server::listen(ctx, {argc > 1 ? argv[1] : "local://tokens"}, models.service()).value();
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto connected = channel::connect(ctx, listening.endpoints().front() + keys);
    if (!connected) {
        std::fprintf(stderr, "%s\n", connected.error().message.c_str());
        return 1;
    }
    return ask(*connected, prompt);
}
