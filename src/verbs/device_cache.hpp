// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/device.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

namespace accel::verbs {

/// The open devices of one context: all of its pollers that ask for the same share one. Thread-safe.
class device_cache {
  public:
    [[nodiscard]] result<std::shared_ptr<device>> open(const verbs_options& wanted, const std::string& near) {
        const std::string key =
            fmt::format("{}|{}|{}|{}|{}", wanted.device, wanted.gid_index, wanted.mtu, wanted.direct, near);
        const std::lock_guard lock(mutex_);
        if (auto open = devices_[key].lock()) return open;
        auto made = device::open(wanted, near);
        if (made) devices_[key] = *made;
        return made;
    }

  private:
    std::mutex mutex_;
    std::map<std::string, std::weak_ptr<device>> devices_;
};

}  // namespace accel::verbs
