// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devx/objects.hpp"
#include "engine/nic.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace accel::softnic {

/// What one open of /dev/infiniband/uverbsN owns. Closing it destroys everything that is left, as the kernel
/// does.
class context {
  public:
    context(nic& owner, int device_index, int command_file);
    ~context();
    context(const context&) = delete;
    context& operator=(const context&) = delete;

    [[nodiscard]] nic& adapter() { return nic_; }
    [[nodiscard]] device& own_device() { return nic_.state.devices[static_cast<std::size_t>(device_index_)]; }
    [[nodiscard]] const device& own_device() const {
        return nic_.state.devices[static_cast<std::size_t>(device_index_)];
    }
    [[nodiscard]] int device_index() const { return device_index_; }
    [[nodiscard]] int command_file() const { return command_file_; }
    /// For when the program has closed the descriptor that it opened, but not its duplicates.
    void use_command_file(int descriptor) { command_file_ = descriptor; }
    /// From now on the program can read the device's time. Throws std::system_error.
    void start_clock();
    [[nodiscard]] std::uint32_t next_handle() { return nic_.next_number(); }

    /// A close() by the program of one of the event descriptors. True if it was one of ours.
    bool forget_descriptor(int descriptor);
    /// The pipe behind an event descriptor, or null.
    [[nodiscard]] event_pipe* find_pipe(int descriptor);
    /// The DevX event channel of this descriptor, or null.
    [[nodiscard]] std::shared_ptr<event_channel> find_event_channel(int descriptor) const;
    [[nodiscard]] std::shared_ptr<event_pipe> asynchronous() const;

    /// Does any object still use this protection domain?
    [[nodiscard]] bool pd_in_use(std::uint32_t pd);
    void destroy_qp(std::uint32_t handle);
    /// False: there is none of this handle.
    bool destroy_window(std::uint32_t handle);

    // Objects by handle. Protection domains have nothing but their number, which is the handle.
    std::map<std::uint32_t, bool> pds;
    std::map<std::uint32_t, std::uint32_t> regions;  ///< handle to key
    std::map<std::uint32_t, std::uint32_t> windows;  ///< handle to key, of any variant
    std::map<std::uint32_t, std::shared_ptr<completion_queue>> cqs;
    std::map<std::uint32_t, std::shared_ptr<shared_receive_queue>> srqs;
    std::map<std::uint32_t, std::uint32_t> qps;   ///< handle to queue pair number
    std::map<std::uint32_t, std::uint32_t> uars;  ///< handle to page
    std::map<std::uint32_t, std::uint32_t> ahs;   ///< handle to protection domain
    std::map<int, std::shared_ptr<event_pipe>> channels;
    std::map<int, std::shared_ptr<event_pipe>> asynchronous_pipes;
    devx::space devx_space;

  private:
    nic& nic_;
    int device_index_;
    int command_file_;
    device_clock* clock_ = nullptr;
};

}  // namespace accel::softnic
