// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi/context.hpp"
#include "engine/runner.hpp"
#include "model/settings.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

struct ib_uverbs_ioctl_hdr;

namespace accel::softnic {

/// What the preload library keeps for the process: the adapters, once somebody opens one, and which
/// descriptors are ours. Never destroyed: programs close devices from static destructors. A child of fork()
/// starts with another.
class installation {
  public:
    static installation& get();

    /// The settings, read once. Null after a complaint on stderr, if the environment makes no sense.
    const settings* configuration();
    /// Opens uverbsN. A descriptor, or -1 with errno.
    int open_device(int index);
    /// Which uverbsN a descriptor is, or -1. Cheap, and without a lock: asked for every close() and fstat(),
    /// which the dynamic loader does under locks of its own.
    [[nodiscard]] int device_of(int descriptor) const;
    /// Which uverbsN a descriptor is that dup() made of one of ours, or -1. Without a lock, but not cheap.
    [[nodiscard]] static int device_of_duplicate(int descriptor);
    /// Carries out an ioctl on one of our descriptors. 0 or an errno value; -1: not ours.
    int control(int descriptor, ib_uverbs_ioctl_hdr* header);
    /// The program closes a descriptor; called before the real close.
    void on_close(int descriptor);
    /// Is this descriptor an event pipe of ours? Cheap: asked for every read() and poll().
    [[nodiscard]] bool is_event_descriptor(int descriptor) const;
    /// Is it a DevX event channel? Programs take its events out by read().
    [[nodiscard]] bool is_event_channel(int descriptor) const;
    /// Takes an event out of a channel: see event_channel::read().
    [[nodiscard]] ssize_t read_event(int descriptor, std::span<std::byte> to);
    /// True when an event descriptor has something to read.
    [[nodiscard]] bool has_event(int descriptor);

    /// Null until this process has opened a device.
    [[nodiscard]] runner* driver() const { return driver_.load(std::memory_order_acquire); }
    [[nodiscard]] nic* adapter() const { return nic_; }
    /// The process ends.
    void at_exit() const;

  private:
    installation();
    bool start();
    void print_statistics() const;
    [[nodiscard]] std::int8_t note_of(int descriptor) const;
    void note(int descriptor, std::int8_t what);
    [[nodiscard]] std::shared_ptr<context> find_context(int descriptor);
    void close_command_file(int descriptor);
    void note_event_descriptors(const context& of);
    static void after_fork_in_child();
    static installation& make();
    static std::atomic<installation*> only;  ///< null in the child of a fork that has not asked for it

    static constexpr int max_descriptor = 1 << 16;
    /// Of a descriptor: not ours, an event pipe or channel, or `first_device` + N of uverbsN.
    static constexpr std::int8_t foreign = 0;
    static constexpr std::int8_t event = 1;
    static constexpr std::int8_t devx_channel = 2;
    static constexpr std::int8_t first_device = 3;

    std::recursive_mutex mutex_;
    std::optional<settings> settings_;
    bool settings_failed_ = false;
    nic* nic_ = nullptr;
    std::atomic<runner*> driver_{nullptr};
    std::map<int, std::shared_ptr<context>> contexts_;   ///< duplicates of a descriptor share one
    std::unique_ptr<std::atomic<std::int8_t>[]> notes_;  ///< what each descriptor is
};

}  // namespace accel::softnic
