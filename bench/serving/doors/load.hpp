// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/clients/line.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace accel::bench {

/// Connections of gRPC to one door, each with one request at a time. One thread, which sleeps until an answer comes.
class door_load {
  public:
    /// `peer_lost`: a connection or its first call failed.
    [[nodiscard]] static result<door_load> open(const std::string& address, std::size_t connections,
                                                std::size_t size_bytes);
    door_load(door_load&& other) noexcept;
    door_load& operator=(door_load&&) = delete;
    ~door_load();

    /// Calls for so long, and waits for the last answers. The time of each call, in microseconds. `peer_lost`: a call
    /// failed, or had another answer than its request.
    [[nodiscard]] result<std::vector<double>> run(std::chrono::milliseconds how_long);

  private:
    using clock = std::chrono::steady_clock;
    struct member {
        examples::serving::doors::clients::line line;
        std::unique_ptr<examples::serving::doors::clients::infer_talk> talk;
        clock::time_point began{};
        bool waits = false;           ///< for an answer
        bool wants_to_write = false;  ///< as epoll knows it
    };

    door_load() = default;
    void ask(member& one);
    /// False: the connection broke, or the answer is wrong.
    [[nodiscard]] bool go_on(member& one, std::vector<double>& times);
    void listen(member& one);

    int epoll_ = -1;
    std::vector<std::byte> request_;
    std::vector<member> members_;
};

}  // namespace accel::bench
