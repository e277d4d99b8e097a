// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/http/door_access.hpp"
#include "serving/doors/servers/served_model.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace accel::examples::serving::doors {

/// What a door has done, for a program's summary.
struct door_summary {
    std::uint64_t connections = 0;
    std::uint64_t requests = 0;
    std::uint64_t errors = 0;
    std::uint64_t cancelled = 0;
};

/// A door of a program, whatever it speaks.
class opened_door {
  public:
    opened_door() = default;
    opened_door(const opened_door&) = delete;
    opened_door& operator=(const opened_door&) = delete;
    virtual ~opened_door() = default;
    [[nodiscard]] virtual result<void> start() = 0;
    /// With the scheme, and the real port.
    [[nodiscard]] virtual std::string endpoint() const = 0;
    /// What its files say now.
    virtual void renew(const door_access& access) = 0;
    /// Says that it is not ready, and goes on.
    virtual void leave() = 0;
    /// Takes nothing more, and has the loop call `done` in the end.
    virtual void stop(std::function<void()> done) = 0;
    [[nodiscard]] virtual door_summary summary() const = 0;
    [[nodiscard]] virtual const door_metrics& metrics() const = 0;
};

using open_function = std::unique_ptr<opened_door>(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at,
                                                   model_table& models, const door_settings& settings,
                                                   const door_access& access);
open_function open_http;
/// Null where `has_grpc` is false.
open_function open_grpc;
/// This build has a gRPC door.
[[nodiscard]] bool has_grpc() noexcept;

}  // namespace accel::examples::serving::doors
