// SPDX-License-Identifier: Apache-2.0
#include "report/descriptors.hpp"

#include <sys/resource.h>

namespace accel::report {

std::uint64_t raise_descriptor_limit() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    const rlimit wanted{limit.rlim_max, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) limit = wanted;
    return limit.rlim_cur;
}

}  // namespace accel::report
