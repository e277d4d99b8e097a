// SPDX-License-Identifier: Apache-2.0
/// What an application does with the library, here in one process: application [URI]
/// Threads that share a channel, and a pool; coroutines at both ends with requests and responses in parts; deadlines,
/// tensors, metadata, interceptors, targets and health.
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/coro.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <semaphore>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using namespace std::chrono_literals;

constexpr std::string_view token = "Bearer of-this-example";
constexpr auto patience = 30s;
constexpr std::span<const std::byte> nothing;

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The server has two targets: "scale" multiplies the elements of a tensor, and "shout" answers each part of a request
// with a part in capitals.

/// Refuses requests without the token. (A real service compares secrets in constant time.)
struct admission final : server_interceptor {
    result<void> before(const exchange& request) override {
        metadata_room room;
        const auto got = request.metadata(room);
        if (got && find_metadata(*got, "authorization") == token) return {};
        return error{status::unauthorized, 0, "no valid token"};
    }
};

/// The metadata of the request has the factor, that of the response the number of elements.
void scale(exchange request) {
    metadata_room room;
    std::array<tensor, 1> list;
    const auto got = request.metadata(room);
    const auto factor = got ? find_metadata(*got, "factor") : std::nullopt;
    const auto described = request.tensors(list);
    const auto in = tensor_view<const float>::from(list[0], described ? request.request() : std::span<std::byte>{});
    if (!factor || !in) {
        request.fail(status::invalid_argument, 0, "send a tensor of 32-bit floats, and a factor");
        return;
    }
    std::vector<float> scaled(in->elements().begin(), in->elements().end());
    for (float& each : scaled) each *= std::strtof(std::string{*factor}.c_str(), nullptr);
    const auto out = pack_tensors(request.response(), tensor_view<const float>(in->shape(), scaled));
    if (!out || request.describe(out->length, out->list) != status::ok) {
        request.fail(status::message_too_large, 0, "the response has no room for the tensor");
        return;
    }
    const std::string count = std::to_string(scaled.size());
    request.reply(out->length, std::array{metadata_entry{"elements", count}});
}

coro::detached shout(exchange request, coro::gate& gate) {
    if (!co_await gate.enter()) co_return;  // from here on: the thread of the gate
    while (const request_part part = co_await coro::next_request_part(request, gate)) {
        const std::span<std::byte> room = co_await coro::room_for_part(request, gate);
        if (room.size() < part.bytes().size()) break;  // nobody waits any more
        std::ranges::transform(part.bytes(), room.begin(),
                               [](std::byte each) { return std::byte(std::toupper(std::to_integer<int>(each))); });
        if (request.send(part.bytes().size()) != status::ok) break;
    }
    if (request.continues())
        request.fail(status::timed_out, 0, "the next word came too late");  // or nobody waits for the answer
    else
        request.reply(0);
}

/// A thread on which handlers await the parts of their requests.
class handler_loop {
  public:
    coro::gate gate{[this] { woken_.release(); }};

  private:
    void run(const std::stop_token& stop) {
        const std::stop_callback at_stop(stop, [this] { woken_.release(); });
        for (; !stop.stop_requested(); woken_.acquire()) gate.run();
    }
    std::counting_semaphore<> woken_{0};
    std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

// The clients.

void require(bool good, const std::string& what) {
    if (good) return;
    std::fprintf(stderr, "application: %s\n", what.c_str());
    std::exit(1);
}

/// Sends the token with each call, and counts how calls end.
struct caller final : client_interceptor {
    status before(outgoing_call& call) noexcept override { return call.add_metadata("authorization", token); }
    void after(const ended_call& ended) noexcept override {
        ++(ended.outcome.status == status::ok ? answered : not_answered);
    }
    std::atomic<int> answered{0};
    std::atomic<int> not_answered{0};
};

/// `Channel` is a shared_channel or a channel_pool.
template <class Channel>
bool scale_one(Channel& through, target to, float number) {
    const std::array<float, 6> numbers{number, 1, 2, 3, 4, 5};
    std::array<std::byte, 256> request{};
    const auto in = pack_tensors(request, tensor_view<const float>({2, 3}, numbers)).value();
    const std::array metadata{metadata_entry{"factor", "2.5"}};
    const auto answer = through.call(std::span{request}.first(in.length),
                                     {.timeout = patience, .metadata = metadata, .target = to, .tensors = in.list});
    require(answer.ok(), answer.ok() ? "" : answer.error().message);

    metadata_room room;
    std::array<tensor, 1> list;
    const auto said = answer->metadata(room);
    if (!said || find_metadata(*said, "elements") != "6" || !answer->tensors(list)) return false;
    const auto out = tensor_view<const float>::from(list[0], answer->response);
    return out && out->shape().size() == 2 && out->elements()[0] == 2.5F * number;
}

template <class Channel>
int scale_in_threads(Channel& through, int threads) {
    const target to = through.resolve("scale").value();
    std::atomic<int> good{0};
    {
        std::vector<std::jthread> all;
        all.reserve(static_cast<std::size_t>(threads));
        for (int i = 0; i < threads; ++i)
            all.emplace_back([&, i] {
                for (int k = 0; k < 10; ++k) good += scale_one(through, to, static_cast<float>(i * k));
            });
    }
    return good;
}

struct talk {
    std::string heard;
    std::optional<status> end;
};

/// Sends words, one in a part, and hears each as a part of the response.
coro::detached say(coro::calls& calls, target to, std::vector<std::string> words, talk& out) {
    coro::stream stream = calls.parts(nothing, {.timeout = patience, .target = to, .continues = true, .parts = 1});
    for (const std::string& each : words) {
        if (!(co_await stream.send(std::as_bytes(std::span{each}))).ok()) break;
        out.heard += text_of((co_await stream.next()).bytes());
    }
    (void)co_await stream.finish();  // if the call has ended, `next` says how
    coro::answer last = co_await stream.next();
    while (last.more()) last = co_await stream.next();
    out.end = last.status();
}

/// Sends nothing after the beginning. The call ends at its deadline, or is cancelled.
coro::detached hesitate(coro::calls& calls, target to, std::chrono::nanoseconds timeout, bool cancel, talk& out) {
    coro::stream stream = calls.parts(nothing, {.timeout = timeout, .target = to, .continues = true, .parts = 1});
    (void)co_await stream.send({});
    if (cancel) stream.cancel();
    coro::answer last = co_await stream.next();
    while (last.more()) last = co_await stream.next();
    out.end = last.status();
}

/// Coroutines continue in `calls::wait`.
void talk_in_parts(channel server) {
    const target to = server.resolve("shout").value();
    coro::calls calls{std::move(server)};
    std::array<talk, 4> all;
    say(calls, to, {"good ", "morning"}, all[0]);
    say(calls, to, {"to ", "all ", "of ", "you"}, all[1]);
    hesitate(calls, to, patience, true, all[2]);
    hesitate(calls, to, 50ms, false, all[3]);
    const auto has_ended = [](const talk& each) { return each.end.has_value(); };
    const auto deadline = std::chrono::steady_clock::now() + 2 * patience;
    while (!std::ranges::all_of(all, has_ended) && std::chrono::steady_clock::now() < deadline) (void)calls.wait(1s);
    require(all[0].end == status::ok && all[1].end == status::ok, "a talk has failed");
    require(all[2].end == status::cancelled && all[3].end == status::timed_out, "a talk has not ended early");
    std::printf("coroutines heard %s, and %s\n", all[0].heard.c_str(), all[1].heard.c_str());
}

/// Targets come and go while the server serves.
void add_a_target(server& there, channel& client) {
    require(client.resolve("late").code() == status::not_found, "a target is there too early");
    require(there.add_target("late", [](exchange request) { request.reply(0); }).ok(), "no target can be added");
    require(there.set_health("late", health_state::not_serving).ok(), "it has no health");
    const std::vector<std::string> names = client.targets().value();
    for (const std::string& name : names)
        std::printf("%s is %s\n", name.c_str(),
                    client.health(name).value() == health_state::serving ? "serving" : "not serving");
}

}  // namespace

int main(int argc, char** argv) {
    auto ctx = context::open().value();
    handler_loop loop;  // outlives the server, whose handlers enter its gate
    server_options serving;
    serving.security.insecure = true;  // of both ends; docs/security.md has keys
    serving.interceptors = {std::make_shared<admission>()};
    const service_table targets{
        {{"scale", scale}, {"shout", [&](exchange request) { shout(std::move(request), loop.gate); }}}};
    auto there = server::listen(ctx, argc > 1 ? argv[1] : "local://application", targets, serving).value();
    const std::string uri = there.endpoints().front();

    channel_options calling;
    calling.security.insecure = true;
    auto stranger = channel::connect(ctx, uri, calling).value();
    require(stranger.call({}, {.target = target_of("scale")}).code() == status::unauthorized, "a stranger was let in");

    const auto counts = std::make_shared<caller>();
    calling.interceptors = {counts};
    auto shared = shared_channel::connect(ctx, uri, calling).value();
    std::printf("%d answers for threads with a channel\n", scale_in_threads(shared, 12));  // more than it has slots
    auto pool = channel_pool::open(ctx, uri, calling).value();
    std::printf("%d answers for threads with a pool\n", scale_in_threads(pool, 4));
    calling.slots = 16;  // each part on its way has one
    talk_in_parts(channel::connect(ctx, uri, calling).value());
    add_a_target(there, stranger);
    std::printf("%d calls were answered, %d were not\n", counts->answered.load(), counts->not_answered.load());
}
