// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdma/rdma_user_ioctl_cmds.h>

namespace accel::softnic {

/// One RDMA_VERBS_IOCTL as the program passed it, copied in. The header, the attributes and what they point
/// to are untrusted: every access to the program's memory can fail, and then the command fails with EFAULT.
class command {
  public:
    static constexpr std::size_t max_attributes = 64;

    /// Copies header and attributes in. 0, or EFAULT or EINVAL.
    [[nodiscard]] int load(ib_uverbs_ioctl_hdr* from);
    /// Writes handles and flags back. 0 or EFAULT.
    [[nodiscard]] int store() const;

    [[nodiscard]] std::uint16_t object() const { return header_.object_id; }
    [[nodiscard]] std::uint16_t method() const { return header_.method_id; }
    [[nodiscard]] std::span<const ib_uverbs_attr> attributes() const { return {attributes_.data(), header_.num_attrs}; }
    [[nodiscard]] const ib_uverbs_attr* find(std::uint16_t id) const;
    [[nodiscard]] bool has(std::uint16_t id) const { return find(id) != nullptr; }

    /// The value of an input, zero-extended or cut to T: lengths differ between versions of rdma-core. Zero
    /// if absent.
    template <class T>
    [[nodiscard]] T in(std::uint16_t id) {
        T value{};
        read(id, std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }
    /// The bytes of an input, as many as there are and fit.
    void in_bytes(std::uint16_t id, std::span<std::byte> to) { read(id, to); }
    [[nodiscard]] std::size_t in_size(std::uint16_t id) const;
    [[nodiscard]] std::uint32_t handle(std::uint16_t id) const;
    [[nodiscard]] int descriptor(std::uint16_t id) const;

    /// Writes an output, as much as fits, and zeroes the rest of the program's buffer. Absent outputs are not
    /// wanted.
    template <class T>
    void out(std::uint16_t id, const T& value) {
        write(id, std::as_bytes(std::span(&value, 1)));
    }
    void write(std::uint16_t id, std::span<const std::byte> bytes);
    [[nodiscard]] std::size_t out_size(std::uint16_t id) const { return in_size(id); }
    void out_handle(std::uint16_t id, std::uint32_t handle);
    void out_descriptor(std::uint16_t id, int descriptor);

    /// True once any access to the program's memory has failed.
    [[nodiscard]] bool faulted() const { return faulted_; }

  private:
    /// ib_uverbs_ioctl_hdr without the array at its end.
    struct head {
        std::uint16_t length;
        std::uint16_t object_id;
        std::uint16_t method_id;
        std::uint16_t num_attrs;
        std::uint64_t reserved1;
        std::uint32_t driver_id;
        std::uint32_t reserved2;
    };
    static_assert(sizeof(head) == sizeof(ib_uverbs_ioctl_hdr));

    void read(std::uint16_t id, std::span<std::byte> to);
    [[nodiscard]] ib_uverbs_attr* find_mutable(std::uint16_t id);

    ib_uverbs_ioctl_hdr* origin_ = nullptr;
    head header_{};
    std::array<ib_uverbs_attr, max_attributes> attributes_{};
    bool faulted_ = false;
};

}  // namespace accel::softnic
