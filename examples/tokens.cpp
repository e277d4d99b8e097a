// SPDX-License-Identifier: Apache-2.0
/// A server that answers token by token, and a client that sends its prompt in parts and prints each token as it comes:
/// tokens [URI [WORDS...]]
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using namespace std::chrono_literals;

/// The model: says each word of the prompt backwards.
std::optional<std::string> next_token(std::istringstream& prompt) {
    std::string word;
    if (!(prompt >> word)) return std::nullopt;
    std::ranges::reverse(word);
    std::this_thread::sleep_for(1ms);
    return word;
}

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void generate(exchange request) {
    std::string all{text_of(request.request())};
    while (const request_part part = request.receive(10s)) all += text_of(part.bytes());  // the client may send more
    if (request.continues()) return;  // nobody waits for the answer, or the client is too slow
    std::istringstream prompt(all);
    std::size_t sent = 0;
    while (const auto token = next_token(prompt)) {
        // Waits while the client has two unread tokens. Otherwise than `ok`: nobody waits for the rest.
        if (request.send(std::as_bytes(std::span(*token)), 10s) != status::ok) break;
        ++sent;
    }
    const std::string summary = std::to_string(sent) + " tokens";
    const std::size_t length = std::min(summary.size(), request.response().size());
    std::memcpy(request.response().data(), summary.data(), length);
    request.reply(length);
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

int fail(const error& why) {
    std::fprintf(stderr, "tokens: %s\n", why.message.c_str());
    return 1;
}

int ask(channel& server, std::string_view prompt) {
    auto tokens = server.call_parts({}, {.continues = true, .parts = 2});
    if (!tokens) return fail(tokens.error());
    for (constexpr std::size_t piece = 8; prompt.size() > piece; prompt.remove_prefix(piece))
        if (tokens->send(std::as_bytes(std::span(prompt.substr(0, piece))), 5s) != status::ok) break;
    (void)tokens->finish(std::as_bytes(std::span(prompt)), 5s);  // if the call has ended, `next` says why
    for (bool more = true; more;) {
        const auto token = tokens->next(10s);
        if (!token) return fail(token.error());
        more = token->more;
        const std::string_view text = text_of(token->response);
        std::printf(more ? "%.*s " : "(%.*s)\n", static_cast<int>(text.size()), text.data());
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string prompt = "olleh dlrow morf a ledom";
    if (argc > 2) prompt.clear();
    for (int i = 2; i < argc; ++i) prompt += std::string(argv[i]) + " ";

    auto ctx = context::open().value();
    generators models;
    auto listening = server::listen(ctx, argc > 1 ? argv[1] : "local://tokens", models.service()).value();
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto connected = channel::connect(ctx, listening.endpoints().front() + keys);
    if (!connected) return fail(connected.error());
    return ask(*connected, prompt);
}
