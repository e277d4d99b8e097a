// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/clients/line.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

namespace accel::examples::serving::doors::crowd {

using clock = std::chrono::steady_clock;

enum class protocol : std::uint8_t { http, grpc };

/// What all clients have in common.
struct target {
    std::string http;  ///< HOST:PORT; empty: no client uses it
    std::string grpc;
    std::chrono::milliseconds pause{};  ///< the mean time between two requests of a client
    std::chrono::milliseconds patience{};
};

/// What clients have seen.
struct tally {
    std::uint64_t answers = 0;
    std::uint64_t connects = 0;
    std::uint64_t left = 0;  ///< connections that their client ended in the middle of a request, or before its answer
    std::uint64_t given_up = 0;  ///< calls that their client ended alone
    std::uint64_t failures = 0;
    std::string first_failure;
};

/// A client of `double`, which gives each number twice. Each request has numbers of its own, so that the answer to any
/// other is noticed. Leaves at random: in the middle of a request, before its answer, or after it.
class client {
  public:
    client(std::uint32_t number, protocol over, const target& to, tally& seen);

    /// The socket to wait for; below 0: none, until `due`.
    [[nodiscard]] int fd() const noexcept { return line_ ? line_->fd() : -1; }
    [[nodiscard]] bool wants_to_write() const;
    [[nodiscard]] clock::time_point due() const noexcept { return due_; }

    /// The socket can be read or written.
    void on_ready();
    /// `due` has passed.
    void on_due();
    /// No request follows the one that is under way.
    void finish() noexcept { finishing_ = true; }
    [[nodiscard]] bool idle() const noexcept { return stage_ == stage::pause; }

  private:
    enum class stage : std::uint8_t { pause, request };
    enum class plan : std::uint8_t { stay, cut, leave, give_up, close_after };

    void begin();
    void choose_plan();
    [[nodiscard]] bool connect();
    void follow_plan();
    void take_answer();
    void rest();
    void leave();
    void fail(const std::string& why);

    std::uint32_t number_;
    protocol over_;
    const target& to_;
    tally& seen_;
    std::minstd_rand chance_;
    stage stage_ = stage::pause;
    plan plan_ = plan::stay;
    bool finishing_ = false;
    clock::time_point due_;
    std::optional<clients::line> line_;
    std::unique_ptr<clients::infer_talk> talk_;
    std::size_t may_send_ = 0;  ///< bytes of the request
    std::uint32_t requests_ = 0;
    std::array<float, 8> input_{};
};

}  // namespace accel::examples::serving::doors::crowd
