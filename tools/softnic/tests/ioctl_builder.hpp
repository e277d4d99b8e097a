// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rdma/rdma_user_ioctl_cmds.h>

namespace accel::softnic::testing {

/// The bytes of one RDMA_VERBS_IOCTL, as libibverbs would build them.
class ioctl_builder {
  public:
    ioctl_builder(std::uint16_t object, std::uint16_t method) : object_(object), method_(method) {}

    /// Short inputs stand in the attribute, long ones behind a pointer: the value must outlive the call.
    template <class T>
    ioctl_builder& in(std::uint16_t id, const T& value) {
        ib_uverbs_attr attribute{};
        attribute.attr_id = id;
        attribute.len = sizeof value;
        if constexpr (sizeof value <= 8)
            std::memcpy(&attribute.data, &value, sizeof value);
        else
            attribute.data = reinterpret_cast<std::uint64_t>(&value);
        return add(attribute);
    }
    template <class T>
    ioctl_builder& out(std::uint16_t id, T& value) {
        return raw(id, sizeof value, reinterpret_cast<std::uint64_t>(&value));
    }
    ioctl_builder& handle(std::uint16_t id, std::uint64_t value = 0) { return raw(id, 0, value); }
    ioctl_builder& raw(std::uint16_t id, std::uint16_t length, std::uint64_t data,
                       std::uint16_t flags = UVERBS_ATTR_F_MANDATORY) {
        ib_uverbs_attr attribute{};
        attribute.attr_id = id;
        attribute.len = length;
        attribute.flags = flags;
        attribute.data = data;
        return add(attribute);
    }

    /// The finished command; results go back into it.
    ib_uverbs_ioctl_hdr* get() {
        bytes_.assign(header_bytes + attributes_.size() * sizeof(ib_uverbs_attr), std::byte{0});
        const std::uint16_t head[]{static_cast<std::uint16_t>(bytes_.size()), object_, method_,
                                   static_cast<std::uint16_t>(attributes_.size())};
        std::memcpy(bytes_.data(), head, sizeof head);
        if (!attributes_.empty())
            std::memcpy(bytes_.data() + header_bytes, attributes_.data(), attributes_.size() * sizeof(ib_uverbs_attr));
        return reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes_.data());
    }
    /// A handle or descriptor that came back.
    [[nodiscard]] std::uint64_t result(std::uint16_t id) const {
        for (std::size_t at = header_bytes; at < bytes_.size(); at += sizeof(ib_uverbs_attr)) {
            ib_uverbs_attr attribute;
            std::memcpy(&attribute, bytes_.data() + at, sizeof attribute);
            if (attribute.attr_id == id) return attribute.data;
        }
        return ~std::uint64_t{0};
    }

  private:
    static constexpr std::size_t header_bytes = sizeof(ib_uverbs_ioctl_hdr);

    ioctl_builder& add(const ib_uverbs_attr& attribute) {
        attributes_.push_back(attribute);
        return *this;
    }

    std::uint16_t object_;
    std::uint16_t method_;
    std::vector<ib_uverbs_attr> attributes_;
    std::vector<std::byte> bytes_;
};

}  // namespace accel::softnic::testing
