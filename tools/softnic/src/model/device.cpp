// SPDX-License-Identifier: Apache-2.0
#include "model/device.hpp"

#include "fabric/segment.hpp"

#include <fmt/format.h>

namespace accel::softnic {

device::device(int index, const device_plan& plan) : index_(index), slot_of_(qpn_space) {
    for (const link_layer link : plan) ports_.push_back(make_port(index, static_cast<int>(ports_.size()) + 1, link));
}

std::string device::name() const {
    return fmt::format("mlx5_{}", index_);
}

port* device::find_port(std::uint32_t number) {
    return number >= 1 && number <= ports_.size() ? &ports_[number - 1] : nullptr;
}

queue_pair* device::find_queue_pair(std::uint32_t number) const {
    if (number >= qpn_space || slot_of_[number] == 0) return nullptr;
    return queue_pairs_[slot_of_[number] - 1u].get();
}

queue_pair& device::add_queue_pair(std::unique_ptr<queue_pair> qp) {
    queue_pairs_.push_back(std::move(qp));
    slot_of_[queue_pairs_.back()->number] = static_cast<std::uint16_t>(queue_pairs_.size());
    return *queue_pairs_.back();
}

void device::remove_queue_pair(std::uint32_t number) {
    if (find_queue_pair(number) == nullptr) return;
    const std::size_t position = slot_of_[number] - 1u;
    slot_of_[number] = 0;
    if (position + 1 != queue_pairs_.size()) {
        queue_pairs_[position] = std::move(queue_pairs_.back());
        slot_of_[queue_pairs_[position]->number] = static_cast<std::uint16_t>(position + 1);
    }
    queue_pairs_.pop_back();
}

}  // namespace accel::softnic
