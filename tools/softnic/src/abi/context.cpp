// SPDX-License-Identifier: Apache-2.0
#include "abi/context.hpp"

#include "model/window.hpp"

#include <algorithm>

namespace accel::softnic {

context::context(nic& owner, int device_index, int command_file)
    : nic_(owner), device_index_(device_index), command_file_(command_file) {}

context::~context() {
    while (!qps.empty()) destroy_qp(qps.begin()->first);
    while (!windows.empty()) destroy_window(windows.begin()->first);
    for (const auto& [handle, key] : regions) own_device().regions.remove(key);
    for (const auto& [handle, cq] : cqs) nic_.remove_cq(*cq);
    for (const auto& [handle, page] : uars) nic_.remove_uar(page);
    if (clock_ != nullptr) nic_.remove_clock(*clock_);
    for (const auto& [descriptor, channel] : devx_space.channels) channel->abandon();
    std::erase_if(nic_.state.listeners, [this](const event_listener& listener) {
        if (listener.subscribers) return listener.subscribers == devx_space.subscribers;
        return std::any_of(asynchronous_pipes.begin(), asynchronous_pipes.end(),
                           [&](const auto& mine) { return mine.second == listener.pipe; });
    });
}

void context::start_clock() {
    if (clock_ != nullptr) return;
    clock_ = &nic_.add_clock(command_file_);
    clock_->show(nic_.state.now);
}

void context::destroy_qp(std::uint32_t handle) {
    const auto found = qps.find(handle);
    if (found == qps.end()) return;
    if (queue_pair* qp = own_device().find_queue_pair(found->second)) nic_.destroy_qp(*qp);
    qps.erase(found);
}

bool context::destroy_window(std::uint32_t handle) {
    const auto found = windows.find(handle);
    if (found == windows.end()) return false;
    auto& keys = own_device().regions;
    memory_region& window = *keys.find_any_variant(found->second);
    window::unbind(keys, window);
    keys.remove(window.key);
    windows.erase(found);
    return true;
}

bool context::forget_descriptor(int descriptor) {
    if (const auto found = channels.find(descriptor); found != channels.end()) {
        nic_.forget_channel(found->second.get());
        channels.erase(found);
        return true;
    }
    if (const auto found = devx_space.channels.find(descriptor); found != devx_space.channels.end()) {
        found->second->close();
        devx_space.channels.erase(found);
        return true;
    }
    const auto found = asynchronous_pipes.find(descriptor);
    if (found == asynchronous_pipes.end()) return false;
    std::erase_if(nic_.state.listeners, [&](const event_listener& listener) { return listener.pipe == found->second; });
    asynchronous_pipes.erase(found);
    return true;
}

event_pipe* context::find_pipe(int descriptor) {
    if (const auto found = channels.find(descriptor); found != channels.end()) return found->second.get();
    const auto found = asynchronous_pipes.find(descriptor);
    return found == asynchronous_pipes.end() ? nullptr : found->second.get();
}

std::shared_ptr<event_channel> context::find_event_channel(int descriptor) const {
    const auto found = devx_space.channels.find(descriptor);
    return found == devx_space.channels.end() ? nullptr : found->second;
}

std::shared_ptr<event_pipe> context::asynchronous() const {
    return asynchronous_pipes.empty() ? nullptr : asynchronous_pipes.begin()->second;
}

bool context::pd_in_use(std::uint32_t pd) {
    auto& mine = own_device();
    const bool by_region = std::any_of(regions.begin(), regions.end(), [&](const auto& entry) {
        const memory_region* region = mine.regions.find(entry.second);
        return region != nullptr && region->pd == pd;
    });
    const bool by_window = std::any_of(windows.begin(), windows.end(), [&](const auto& entry) {
        const memory_region* window = mine.regions.find_any_variant(entry.second);
        return window != nullptr && window->pd == pd;
    });
    const bool by_qp = std::any_of(qps.begin(), qps.end(), [&](const auto& entry) {
        const queue_pair* qp = mine.find_queue_pair(entry.second);
        return qp != nullptr && qp->options.pd == pd;
    });
    const bool by_srq =
        std::any_of(srqs.begin(), srqs.end(), [&](const auto& entry) { return entry.second->who().pd == pd; });
    const bool by_ah = std::any_of(ahs.begin(), ahs.end(), [&](const auto& entry) { return entry.second == pd; });
    return by_region || by_window || by_qp || by_srq || by_ah;
}

}  // namespace accel::softnic
