#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

namespace accel::bench {

/// What one end of a bare verbs connection tells the other, over a socket, as it is.
struct verbs_address {
    std::uint32_t queue_pair = 0;
    std::uint32_t psn = 0;
    std::uint32_t lid = 0;
    std::uint32_t key = 0;      ///< remote key of the slots
    std::uint64_t address = 0;  ///< of the first slot
    ibv_gid gid{};
};

/// One end of an RC connection, on the first active port of this machine. A message is a header of 64 bytes
/// and its payload behind it, in a slot; it goes to the same slot of the peer by one RDMA WRITE WITH
/// IMMEDIATE, whose immediate data is the slot's number. One completion in sixteen is asked for.
class verbs_link {
  public:
    [[nodiscard]] static result<std::unique_ptr<verbs_link>> open(std::uint32_t slots,
                                                                  std::size_t payload_bytes, bool blocks);

    [[nodiscard]] verbs_address address() const noexcept;
    [[nodiscard]] result<void> connect(const verbs_address& peer);

    /// False: the connection broke.
    [[nodiscard]] bool send(std::uint32_t slot) noexcept;
    /// How many messages came, at most `most`; their slots are written to `slots`. Below 0: the connection
    /// broke.
    [[nodiscard]] int poll(std::uint32_t* slots, int most) noexcept;
    /// Sleeps until there may be something to poll, or `other_fd` is readable, or the time is over. False: it
    /// is.
    [[nodiscard]] bool sleep(int other_fd, int milliseconds) noexcept;

  private:
    template <auto Destroy>
    struct destroyer {
        void operator()(auto* object) const noexcept { (void)Destroy(object); }
    };

    verbs_link(std::uint32_t slots, std::size_t payload_bytes);
    [[nodiscard]] result<void> open_port();
    [[nodiscard]] bool take_port(ibv_context& context, std::uint8_t number);
    [[nodiscard]] result<void> create(bool blocks);
    [[nodiscard]] bool to_ready(const verbs_address& peer);
    [[nodiscard]] bool post_receive() noexcept;

    std::uint32_t slots_;
    std::size_t message_bytes_;
    std::size_t stride_;
    std::vector<std::byte> memory_;  ///< slots to send from, then slots to receive into
    std::byte* out_ = nullptr;
    std::byte* in_ = nullptr;
    std::unique_ptr<ibv_context, destroyer<&ibv_close_device>> context_;
    std::unique_ptr<ibv_pd, destroyer<&ibv_dealloc_pd>> domain_;
    std::unique_ptr<ibv_mr, destroyer<&ibv_dereg_mr>> memory_keys_;
    std::unique_ptr<ibv_comp_channel, destroyer<&ibv_destroy_comp_channel>> channel_;
    std::unique_ptr<ibv_cq, destroyer<&ibv_destroy_cq>> completions_;
    std::unique_ptr<ibv_qp, destroyer<&ibv_destroy_qp>> queue_pair_;
    ibv_port_attr port_{};
    ibv_gid gid_{};
    std::uint8_t port_number_ = 0;
    std::uint8_t gid_index_ = 0;
    std::uint32_t inline_bytes_ = 0;
    std::uint32_t sent_ = 0;
    verbs_address peer_;
};

}  // namespace accel::bench
