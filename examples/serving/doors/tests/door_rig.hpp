// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/child_process.hpp"
#include "serving/doors/clients/grpc_wire.hpp"
#include "serving/doors/clients/line.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

/// The gRPC door and the server of stand_in.cpp behind it, for a test, and a client whose bytes the test makes.
namespace accel::examples::serving::doors::tests {

/// Both end with it. `options` are further ones of the door.
class door_rig {
  public:
    explicit door_rig(const std::vector<std::string>& options = {});
    door_rig(const door_rig&) = delete;
    door_rig& operator=(const door_rig&) = delete;
    ~door_rig();

    [[nodiscard]] const std::string& grpc() const noexcept { return grpc_; }
    [[nodiscard]] pid_t id() const noexcept { return door_->id(); }
    /// Sends SIGTERM, and says how long the door took to end well; nothing: it did not.
    [[nodiscard]] std::optional<std::chrono::milliseconds> end();

  private:
    std::vector<std::string> files_;
    std::optional<report::child_process> server_;
    std::optional<report::child_process> door_;
    std::string grpc_;
};

/// One connection to a door for gRPC.
class grpc_client {
  public:
    explicit grpc_client(const std::string& address, clients::grpc_flow flow = {});

    [[nodiscard]] clients::grpc_wire& wire() noexcept { return wire_; }
    /// Sends what there is to send, and reads meanwhile. False: the connection ended.
    [[nodiscard]] bool flush();
    /// Waits for the end of the call. False: it did not come, or the connection ended first.
    [[nodiscard]] bool finish(std::chrono::milliseconds patience = std::chrono::seconds{20});
    /// A whole call with one message: its code; nothing as for `finish`.
    [[nodiscard]] std::optional<int> call(std::string_view method, std::string_view message);
    /// An inference of the model with eight times this number: the code.
    [[nodiscard]] std::optional<int> infer(const std::string& model, float value);
    /// Begins it, without waiting.
    void ask(const std::string& model, float value);
    /// True: the last answer is eight times twice this number.
    [[nodiscard]] bool has_twice(float value) const;
    /// True: the door has closed the connection, within `patience`.
    [[nodiscard]] bool closed(std::chrono::milliseconds patience);

  private:
    clients::line line_;
    clients::grpc_wire wire_;
};

/// The request of `grpc_client::infer`.
[[nodiscard]] std::string request_message(const std::string& model, float value);

inline constexpr std::string_view service = "/inference.GRPCInferenceService/";

}  // namespace accel::examples::serving::doors::tests
