// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::softnic {

/// A descriptor that the program reads events from: 8-byte records (completion channel) or 16-byte ones
/// (asynchronous events). Both begin with the user handle of the object they are about. The program owns the
/// reading end.
class event_pipe {
  public:
    enum class kind : std::uint8_t { completion = 8, asynchronous = 16 };

    /// Throws std::system_error when there are no descriptors left.
    explicit event_pipe(kind what);
    ~event_pipe();
    event_pipe(const event_pipe&) = delete;
    event_pipe& operator=(const event_pipe&) = delete;

    [[nodiscard]] int read_descriptor() const { return read_; }
    /// False when the pipe is full: the event is lost, as on hardware when its event queue overflows.
    bool send(std::uint64_t element, std::uint32_t event_type = 0);
    /// Takes the unread events about `element` out again, and says how many they were.
    unsigned take_back(std::uint64_t element);
    [[nodiscard]] bool readable() const;

  private:
    kind kind_;
    int read_ = -1;
    int write_ = -1;
};

}  // namespace accel::softnic
