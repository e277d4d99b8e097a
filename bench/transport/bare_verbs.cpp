// SPDX-License-Identifier: Apache-2.0
#include "bare_verbs_link.hpp"
#include "loopback_socket.hpp"
#include "side.hpp"

#include <array>
#include <chrono>

#include <sys/socket.h>

namespace accel::bench {
namespace {

using clock = std::chrono::steady_clock;
constexpr int no_more_patience_ms = 10'000;
constexpr std::uint32_t polls_between_looks = 4096;

std::span<std::byte> bytes_of(verbs_address& address) noexcept {
    return std::as_writable_bytes(std::span{&address, 1});
}

/// The two ends tell each other their addresses, and that they are ready.
result<void> meet(verbs_link& link, int socket) {
    verbs_address own = link.address();
    verbs_address peer;
    std::array<std::byte, 1> ready{};
    const error broken{status::peer_lost, 0, "the other end went while connecting"};
    if (!write_all(socket, bytes_of(own)) || !read_all(socket, bytes_of(peer))) return broken;
    if (auto done = link.connect(peer); !done) return done.error();
    if (!write_all(socket, ready) || !read_all(socket, ready)) return broken;
    return {};
}

bool has_gone(int socket) noexcept {
    char byte = 0;
    return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

class verbs_echo final : public echo {
  public:
    verbs_echo(descriptor socket, std::unique_ptr<verbs_link> link, std::uint32_t in_flight, bool blocks)
        : socket_(std::move(socket)), link_(std::move(link)), in_flight_(in_flight), blocks_(blocks) {}

    bool round_trip() override {
        for (; started_ < in_flight_; ++started_)
            if (!link_->send(started_)) return false;
        const auto until = clock::now() + std::chrono::milliseconds{no_more_patience_ms};
        for (std::uint32_t polls = 1;; ++polls) {
            std::uint32_t slot = 0;
            if (const int got = link_->poll(slot); got != 0) return got > 0 && answered(slot);
            if (blocks_) {
                if (!link_->sleep(socket_.get(), no_more_patience_ms)) return false;
            } else if (polls % polls_between_looks == 0 && clock::now() > until) {
                return false;
            }
        }
    }

  private:
    /// The slot is free for the next request, which with one in flight begins with the next round trip.
    bool answered(std::uint32_t slot) {
        if (in_flight_ > 1) return link_->send(slot);
        started_ = 0;
        return true;
    }

    descriptor socket_;
    std::unique_ptr<verbs_link> link_;
    std::uint32_t in_flight_;
    bool blocks_;
    std::uint32_t started_ = 0;
};

}  // namespace

side bare_verbs(std::size_t size_bytes, std::uint32_t in_flight, bool blocks) {
    return {blocks ? "bare verbs block" : "bare verbs busy",
            {blocks ? "verbs-block" : "verbs-busy", std::to_string(size_bytes), std::to_string(in_flight)},
            [in_flight, blocks](const std::string& port, std::size_t payload_bytes) -> result<std::unique_ptr<echo>> {
                auto socket = connect_on_loopback(port);
                if (!socket) return socket.error();
                auto link = verbs_link::open({in_flight, payload_bytes, false, blocks});
                if (!link) return link.error();
                if (auto met = meet(**link, socket->get()); !met) return met.error();
                return std::unique_ptr<echo>{
                    std::make_unique<verbs_echo>(std::move(*socket), std::move(*link), in_flight, blocks)};
            }};
}

int serve_bare_verbs(std::size_t size_bytes, std::uint32_t in_flight, bool blocks) {
    auto link = verbs_link::open({in_flight, size_bytes, true, blocks});
    if (!link) return 1;
    const descriptor client = serve_one_on_loopback();
    if (client.get() < 0 || !meet(**link, client.get())) return 1;
    for (std::uint32_t polls = 1;; ++polls) {
        std::uint32_t slot = 0;
        const int got = (*link)->poll(slot);
        if (got < 0 || (got > 0 && !(*link)->send(slot))) return 1;
        if (got > 0) continue;
        const bool gone = blocks ? !(*link)->sleep(client.get(), no_more_patience_ms)
                                 : polls % polls_between_looks == 0 && has_gone(client.get());
        if (gone) return 0;
    }
}

}  // namespace accel::bench
