// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"
#include "model/event_subscribers.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace accel::softnic::devx {

/// Memory that the program gave for queues, records and keys. Objects in it share it, so it cannot be
/// deregistered before them.
struct umem {
    std::uint64_t address = 0;  ///< of its engine: the program's, or an offset into a dma-buf
    std::uint64_t length = 0;
    std::uint32_t access = 0;  ///< bits of ibv_access_flags
    std::shared_ptr<dma_engine> engine = host_dma();

    [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t size_bytes) const {
        return offset <= length && size_bytes <= length - offset;
    }
};

enum class object_kind : std::uint8_t { domain, key, completion_queue, queue_pair, target, receive_queue };

/// What a command created. The object itself stands in the context's own table, by the same handle.
struct object {
    object_kind kind = object_kind::domain;
    std::vector<std::shared_ptr<umem>> memory;
    /// Of its events. What raises none has subscribers too: they never hear anything.
    std::shared_ptr<event_subscribers> subscribers = std::make_shared<event_subscribers>();
};

/// Everything of a context that verbs do not know.
struct space {
    bool enabled = false;                                    ///< opened with the DEVX flag
    std::map<std::uint32_t, std::shared_ptr<umem>> umems;    ///< by number, which is the handle too
    std::map<std::uint32_t, object> objects;                 ///< by handle
    std::map<int, std::shared_ptr<event_channel>> channels;  ///< by descriptor
    std::shared_ptr<event_subscribers> subscribers;          ///< of the device's own events; null before the first
};

}  // namespace accel::softnic::devx
