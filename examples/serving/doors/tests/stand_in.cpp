// SPDX-License-Identifier: Apache-2.0
/// door_stand_in URI: a server with models whose answers a test can foresee, until SIGTERM. Each of them takes eight
/// floats and gives eight: `double` gives twice as much, `slow` likewise after 300 ms, `failing` fails with a sentence,
/// `short` answers too little, `nan` with what JSON cannot say. `large` gives 2^20 numbers, all of them the first.
#include "report/program.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t numbers = 8;
constexpr std::size_t payload = numbers * sizeof(float);

void answer_with(accel::exchange& to, float factor) {
    if (to.request().size() != payload || to.response().size() < payload) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "eight floats are wanted"));
        return;
    }
    float values[numbers];
    std::memcpy(values, to.request().data(), sizeof values);
    for (float& each : values) each *= factor;
    std::memcpy(to.response().data(), values, sizeof values);
    accel::tensor one;
    one.rank = 1;
    one.shape[0] = numbers;
    static_cast<void>(to.describe(payload, std::span{&one, 1}));
    static_cast<void>(to.reply(payload));
}

void answer_at_length(accel::exchange& to) {
    constexpr std::size_t count = 1 << 20;
    if (to.request().size() != payload || to.response().size() < count * sizeof(float)) {
        static_cast<void>(to.fail(accel::status::invalid_argument, 0, "eight floats are wanted, and room for 4 MiB"));
        return;
    }
    float first = 0;
    std::memcpy(&first, to.request().data(), sizeof first);
    const std::vector<float> values(count, first);
    std::memcpy(to.response().data(), values.data(), count * sizeof(float));
    accel::tensor one;
    one.rank = 1;
    one.shape[0] = count;
    static_cast<void>(to.describe(count * sizeof(float), std::span{&one, 1}));
    static_cast<void>(to.reply(count * sizeof(float)));
}

void answer_later(accel::exchange to) {
    std::thread([held = std::move(to)]() mutable {
        // Once nobody waits it answers sooner, but late enough for the client to have noticed its deadline itself.
        for (int i = 0; i < 30 && !held.cancelled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
        if (held.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds{100});
        answer_with(held, 2);
    }).detach();
}

accel::service_table services() {
    return {.named = {{"double", [](accel::exchange to) { answer_with(to, 2); }},
                      {"slow", [](accel::exchange to) { answer_later(std::move(to)); }},
                      {"failing",
                       [](accel::exchange to) {
                           static_cast<void>(to.fail(accel::status::application_error, 7, "the model is on fire"));
                       }},
                      {"short", [](accel::exchange to) { static_cast<void>(to.reply(4)); }},
                      {"large", [](accel::exchange to) { answer_at_length(to); }},
                      {"nan", [](accel::exchange to) { answer_with(to, std::numeric_limits<float>::quiet_NaN()); }}}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return accel::report::complain("door_stand_in", "it takes one URI");
    accel::report::block_stop_signals();
    auto context = accel::context::open();
    if (!context) return accel::report::complain("door_stand_in", context.error());
    auto server = accel::server::listen(*context, {std::string_view{argv[1]}}, services());
    if (!server) return accel::report::complain("door_stand_in", server.error());
    std::printf("serving %s\n", server->endpoints().front().c_str());
    std::fflush(stdout);
    accel::report::wait_for_stop_signal();
    server->stop();
    return 0;
}
