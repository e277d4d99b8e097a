// SPDX-License-Identifier: Apache-2.0
#include "abi/command.hpp"

#include "dma/guarded.hpp"

#include <cerrno>
#include <cstddef>

namespace accel::softnic {
namespace {

constexpr std::size_t inline_bytes = 8;  ///< inputs this short stand in the attribute itself
constexpr std::array<std::byte, 256> zeroes{};

}  // namespace

int command::load(ib_uverbs_ioctl_hdr* from) {
    origin_ = from;
    if (!guarded::copy(&header_, from, sizeof header_)) return EFAULT;
    const std::size_t attributes_bytes = header_.num_attrs * sizeof(ib_uverbs_attr);
    if (header_.num_attrs > max_attributes || header_.length != sizeof header_ + attributes_bytes) return EINVAL;
    const auto* behind = reinterpret_cast<const std::byte*>(from) + sizeof header_;
    return guarded::copy(attributes_.data(), behind, attributes_bytes) ? 0 : EFAULT;
}

int command::store() const {
    auto* behind = reinterpret_cast<std::byte*>(origin_) + sizeof header_;
    return guarded::copy(behind, attributes_.data(), header_.num_attrs * sizeof(ib_uverbs_attr)) ? 0 : EFAULT;
}

const ib_uverbs_attr* command::find(std::uint16_t id) const {
    for (const auto& attribute : attributes())
        if (attribute.attr_id == id) return &attribute;
    return nullptr;
}

ib_uverbs_attr* command::find_mutable(std::uint16_t id) {
    return const_cast<ib_uverbs_attr*>(find(id));
}

std::size_t command::in_size(std::uint16_t id) const {
    const auto* attribute = find(id);
    return attribute == nullptr ? 0 : attribute->len;
}

std::uint32_t command::handle(std::uint16_t id) const {
    const auto* attribute = find(id);
    return attribute == nullptr ? 0 : static_cast<std::uint32_t>(attribute->data);
}

int command::descriptor(std::uint16_t id) const {
    const auto* attribute = find(id);
    return attribute == nullptr ? -1 : static_cast<int>(attribute->data_s64);
}

void command::read(std::uint16_t id, std::span<std::byte> to) {
    const auto* attribute = find(id);
    if (attribute == nullptr) return;
    const std::size_t size = std::min<std::size_t>(attribute->len, to.size());
    if (attribute->len <= inline_bytes)
        std::memcpy(to.data(), &attribute->data, size);
    else if (!guarded::copy(to.data(), guarded::pointer(attribute->data), size))
        faulted_ = true;
}

void command::write(std::uint16_t id, std::span<const std::byte> bytes) {
    auto* attribute = find_mutable(id);
    if (attribute == nullptr) return;
    const std::size_t size = std::min<std::size_t>(attribute->len, bytes.size());
    bool good = guarded::copy(guarded::pointer(attribute->data), bytes.data(), size);
    for (std::size_t at = size; good && at < attribute->len; at += zeroes.size()) {
        const std::size_t part = std::min<std::size_t>(zeroes.size(), attribute->len - at);
        good = guarded::copy(guarded::pointer(attribute->data + at), zeroes.data(), part);
    }
    if (!good) faulted_ = true;
    attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

void command::out_handle(std::uint16_t id, std::uint32_t handle) {
    if (auto* attribute = find_mutable(id)) attribute->data = handle;
}

void command::out_descriptor(std::uint16_t id, int descriptor) {
    if (auto* attribute = find_mutable(id)) attribute->data_s64 = descriptor;
}

}  // namespace accel::softnic
