// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace accel::examples::serving::doors::crowd {

holdings watch::now() const {
    holdings out;
    std::error_code failed;
    std::filesystem::directory_iterator each{folder_ + "/fd", failed};
    for (; !failed && each != std::filesystem::directory_iterator{}; each.increment(failed)) ++out.descriptors;
    std::size_t whole = 0;
    std::size_t resident = 0;
    std::ifstream{folder_ + "/statm"} >> whole >> resident;
    out.memory_kib = resident * (static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) >> 10);
    return out;
}

void watch::look() {
    seen_.push_back(now());
}

holdings watch::most(std::size_t from, std::size_t to) const {
    holdings out;
    for (std::size_t i = from; i < std::min(to, seen_.size()); ++i) {
        out.descriptors = std::max(out.descriptors, seen_[i].descriptors);
        out.memory_kib = std::max(out.memory_kib, seen_[i].memory_kib);
    }
    return out;
}

}  // namespace accel::examples::serving::doors::crowd
