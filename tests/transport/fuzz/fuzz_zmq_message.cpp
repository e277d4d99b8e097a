// SPDX-License-Identifier: Apache-2.0
// Frames on a ZeroMQ data socket. Byte 0: which end receives; then for each frame whether another follows,
// its length and the bytes.
#include "backends/zmq/arrivals.hpp"
#include "backends/zmq/message.hpp"
#include "fuzz_target.hpp"

#include <array>
#include <cstring>

namespace {

using namespace accel;
using tests::require;

constexpr std::uint32_t slots = 4;
constexpr std::size_t capacity = 300;

/// Two ends of one in-process connection, kept over all inputs.
struct socket_pair {
    void* context = zmq_ctx_new();
    void* from = zmq_socket(context, ZMQ_PAIR);
    void* to = zmq_socket(context, ZMQ_PAIR);
    socket_pair() {
        const int unbounded = 0;
        zmq_setsockopt(from, ZMQ_SNDHWM, &unbounded, sizeof unbounded);
        zmq_setsockopt(to, ZMQ_RCVHWM, &unbounded, sizeof unbounded);
        require(zmq_bind(to, "inproc://fuzz") == 0 && zmq_connect(from, "inproc://fuzz") == 0, "inproc works");
    }
    ~socket_pair() {
        zmq_close(from);
        zmq_close(to);
        zmq_ctx_term(context);
    }
};

void send_frames(void* socket, tests::input_reader& input) {
    for (bool more = true; more;) {
        const std::uint8_t control = input.byte();
        const auto frame = input.bytes(control % 128 < 4 ? 64 : std::size_t{input.byte()} * 2);
        more = control >= 128 && !input.empty();
        require(zmq_send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0,
                "it is sent");
    }
}

void check(const zmq::incoming& in, std::span<const std::byte> payload, std::span<const std::byte> room) {
    require(in.header.slot < slots, "the slot exists");
    require(payload.size() == in.header.length && payload.size() <= capacity, "the length fits the slot");
    unsigned sum = 0;
    for (const std::byte b : payload) sum += std::to_integer<unsigned>(b);  // all of it can be read
    require(sum <= 255U * capacity, "bytes are bytes");
    (void)room;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static socket_pair w;
    tests::input_reader input(data, size);
    const auto kind = input.byte() % 2 == 0 ? core::message_kind::request : core::message_kind::response;
    auto memory = core::slot_memory::create(slots, capacity).value();
    zmq::arrival_slots arrivals(slots, capacity, memory);
    std::array<std::byte, 64> own{};
    while (!input.empty()) {
        send_frames(w.from, input);
        zmq::incoming in;
        status verdict = status::ok;
        require(zmq::receive_message(w.to, kind, in, verdict), "one message is received as one");
        if (verdict != status::ok) continue;
        std::span<std::byte> payload;
        const bool directed = kind == core::message_kind::response && in.header.length <= own.size();
        const status placed = directed ? arrivals.place_in(own, in, payload) : arrivals.place(in, payload);
        if (placed != status::ok) continue;
        check(in, payload, own);
        if (in.header.generation % 2 == 0) arrivals.consumed(in.header.slot);
    }
    zmq::message_part left;
    require(!left.receive(w.to), "nothing of a message stays behind");
    return 0;
}
