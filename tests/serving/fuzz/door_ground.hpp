// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz_target.hpp"
#include "serving/doors/configuration/choices.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/http/listener.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/servers/door_models.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <boost/asio/io_context.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/// What a door of the fuzz targets stands on: its loop, and a server in this process whose models answer at once.
/// `twice` gives its two numbers twice, or fails if the first one is below zero. `same` gives its tensors back, which
/// are of any shape. `words` answers each byte of its text in a part.
namespace accel::tests {

namespace doors = examples::serving::doors;

/// Only a hang takes as long.
inline constexpr std::chrono::seconds door_patience{60};

inline void answer_twice(exchange asked) {
    std::array<float, 2> values{};
    if (asked.request().size() == sizeof values) std::memcpy(values.data(), asked.request().data(), sizeof values);
    if (values[0] < 0) return void(asked.fail(status::application_error, 7, "below zero"));
    for (float& each : values) each *= 2;
    std::memcpy(asked.response().data(), values.data(), sizeof values);
    static_cast<void>(asked.reply(sizeof values));
}

inline void answer_same(exchange asked) {
    std::array<tensor, max_tensors> room;
    const auto described = asked.tensors(room);
    const auto given = asked.request();
    if (!described || given.size() > asked.response().size())
        return void(asked.fail(status::invalid_argument, 0, "it describes its tensors"));
    if (!given.empty()) std::memcpy(asked.response().data(), given.data(), given.size());
    static_cast<void>(asked.describe(given.size(), *described));
    static_cast<void>(asked.reply(given.size()));
}

/// A part that finds no room ends the answer.
inline void answer_in_words(exchange asked) {
    for (const std::byte each : asked.request()) {
        tensor one{.type = {type_code::unsigned_integer, 8, 1}, .rank = 1};
        one.shape[0] = 1;
        std::array<std::byte, 256> part{};
        const std::size_t bytes = place_tensors(std::span{&one, 1});
        static_cast<void>(describe(std::span{part}.first(bytes), std::span{&one, 1}));
        part[one.offset] = each;
        if (each == std::byte{0} || asked.send(std::span{part}.first(bytes)) != status::ok) break;
    }
    static_cast<void>(asked.reply(0));
}

inline examples::serving::oip::model_description described(std::string_view text) {
    return examples::serving::oip::read_description(text).value();
}

/// Waits for nobody's clock: an input takes as long as its machine.
inline doors::door_settings patient_settings() {
    doors::door_settings out;
    constexpr std::chrono::hours hour{1};
    for (auto* each : {&out.idle_timeout, &out.handshake_timeout, &out.head_timeout, &out.body_timeout, &out.body_grace,
                       &out.slot_timeout, &out.write_timeout, &out.part_timeout, &out.stream_timeout})
        *each = hour;
    out.passed_headers = {"a", "b-bin"};
    return out;
}

class door_ground {
  public:
    /// `workers`: of the server. 0: `settle` serves.
    explicit door_ground(std::uint32_t workers)
        : ctx_(context::open({.log = log_level::off}).value()),
          server_(
              server::listen(ctx_, {"local://fuzzed-door"},
                             {.named = {{"twice", answer_twice}, {"same", answer_same}, {"words", answer_in_words}}},
                             {.workers = workers})
                  .value()),
          polls_(workers == 0) {
        std::atomic<bool> open{false};
        std::thread serving([&] {
            while (polls_ && !open) serve();
        });
        behind_ = doors::connect_models(loop, ctx_, chosen()).value();
        open = true;
        serving.join();
    }

    /// Runs what is ready, until nothing is.
    void settle() {
        while (loop.poll() + serve() > 0) loop.restart();
    }
    [[nodiscard]] doors::model_table& models() { return behind_.models; }
    [[nodiscard]] boost::asio::ip::tcp::acceptor bound() { return doors::bind_at(loop, "127.0.0.1:0").value(); }
    /// A client's socket, from an address of its own, so that ports do not run out. `where`: the door's "HOST:PORT".
    [[nodiscard]] int connect_to(const std::string& where) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        sockaddr_in from{};
        from.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(0x7f010000 + (next_client_++ & 0xffff));
        sockaddr_in to = from;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1))));
        const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0;
        require(bound && ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "a client connects");
        return fd;
    }
    /// No request has anything of the door any more.
    [[nodiscard]] bool is_at_rest(doors::door_metrics& of) const {
        bool rests = of.memory->taken() == 0;
        for (std::size_t row = 0; row < doors::door_metrics::first_model + behind_.models.size(); ++row)
            rests = rests && of.row(row).in_flight.load() == 0;
        return rests;
    }

    boost::asio::io_context loop{1};

  private:
    std::size_t serve() { return polls_ ? server_.poll() : 0; }
    /// Few slots: who keeps one for ever is noticed soon. Words need several, which no other model is to have.
    static doors::choices chosen() {
        doors::choices out;
        out.reach.slots = 2;
        out.models = {{"twice", "local://fuzzed-door"},
                      {"same", "local://fuzzed-door"},
                      {"words", "local://fuzzed-door?slots=8"}};
        out.described = {
            described(R"({"name":"twice","inputs":[{"name":"x","datatype":"FP32","shape":[2]}],
                "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})"),
            described(R"({"name":"same","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                {"name":"s","datatype":"BYTES","shape":[-1],"max_bytes":64}],
                "outputs":[{"name":"y","datatype":"FP32","shape":[-1,2],"max_bytes":64},
                {"name":"t","datatype":"BYTES","shape":[-1],"max_bytes":64}]})"),
            described(R"({"name":"words","decoupled":true,
                "inputs":[{"name":"text_input","datatype":"UINT8","shape":[8],"text":true}],
                "outputs":[{"name":"text_output","datatype":"UINT8","shape":[8],"text":true}]})")};
        return out;
    }

    context ctx_;
    server server_;
    const bool polls_;
    doors::door_models behind_;
    std::uint32_t next_client_ = 0;
};

}  // namespace accel::tests
