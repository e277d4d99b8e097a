// SPDX-License-Identifier: Apache-2.0
#include "bare_verbs_domain.hpp"

#include "report/percentiles.hpp"

#include <chrono>
#include <vector>

#include <infiniband/verbs.h>

namespace accel::bench {

bare_domain::bare_domain() noexcept {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr) return;
    if (count > 0) device_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (device_ != nullptr) domain_ = ibv_alloc_pd(device_);
}

bare_domain::~bare_domain() {
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    if (device_ != nullptr) ibv_close_device(device_);
}

std::optional<double> bare_domain::register_all(std::span<const std::span<std::byte>> ranges) const {
    if (domain_ == nullptr) return std::nullopt;
    std::vector<ibv_mr*> made(ranges.size());
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < ranges.size(); ++i)
        made[i] = ibv_reg_mr(domain_, ranges[i].data(), ranges[i].size(), 0);
    const auto end = std::chrono::steady_clock::now();
    bool all = true;
    for (ibv_mr* each : made) {
        all = all && each != nullptr;
        if (each != nullptr) ibv_dereg_mr(each);
    }
    return all ? std::optional{report::microseconds(end - start)} : std::nullopt;
}

}  // namespace accel::bench
