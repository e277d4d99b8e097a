// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"
#include "core/link.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace accel::core {

struct security_identity;

/// A source of events that one thread polls.
class event_source {
  public:
    virtual ~event_source() = default;
    /// Takes events in order of arrival, fairly over the links; returns how many; never blocks. Also makes
    /// progress on what is being sent. Called with room for at least 16.
    [[nodiscard]] virtual std::size_t poll(std::span<link_event> out) noexcept = 0;
    /// Readable when poll has something to do, provided `arm` said true.
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    /// Before sleeping on event_fd. False: something is ready, poll instead.
    [[nodiscard]] virtual bool arm() noexcept = 0;
    /// Sleeps until poll has something to do, `other_fd` (always the same one) is readable or `until` has
    /// passed; may end early. Only after `arm` said true, with `disarm` behind it. True: `other_fd` is
    /// readable.
    [[nodiscard]] virtual bool sleep(int other_fd, nanoseconds until) noexcept {
        std::array<pollfd, 2> fds{{{event_fd(), POLLIN, 0}, {other_fd, POLLIN, 0}}};
        sleep_on(fds, until);
        return (fds[1].revents & POLLIN) != 0;
    }
    /// The same where `other_fd` is in no hurry, and may be heard 10 ms late: a source can then sleep in the read that
    /// takes the next message, which saves a system call.
    [[nodiscard]] virtual bool doze(int other_fd, nanoseconds until) noexcept { return sleep(other_fd, until); }
    /// After waking. Cheap.
    virtual void disarm() noexcept {}
};

/// All links of one thread and one backend, and their common source of events.
class poller : public event_source {
  public:
    /// Control path, any thread.
    [[nodiscard]] virtual result<std::unique_ptr<link>> open_link(const link_config& config) = 0;
    /// Server, any thread: a client has connected for one of this poller's links. Answers and takes the
    /// connection, or refuses and leaves it. Does not block.
    [[nodiscard]] virtual result<void> take_connection(data_connection& /*made*/) {
        return error{status::unauthorized, 0, "sessions of this transport have no data connection"};
    }
};

struct poller_options {
    link_role role = link_role::client;
    /// Server: where to listen for data; `port` 0 is any.
    std::string host;
    std::uint16_t port = 0;
    std::shared_ptr<const security_identity> security;  ///< null for in-process backends
    bool zerocopy = false;
    bit_rate pacing{};
    verbs_options verbs{};
    std::uint32_t sessions = 0;  ///< server: at once, of all pollers together
    /// Server: the longest request that a session may be granted; 0: any.
    std::size_t max_request_bytes = 0;
};

}  // namespace accel::core
