// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include "core/uri.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace accel::core {

result<pool_hosts> pool_hosts::read(std::string_view uri, nanoseconds pause) {
    const auto each = one_host_each(uri);
    if (!each) return each.error();
    pool_hosts out;
    out.pause_ = pause;
    for (const std::string& text : each.value()) {
        if (auto good = parse_client_uri(text); !good) return good.error();
        const std::size_t begin = text.find("://") + 3;
        const std::size_t end = std::min(text.find('?', begin), text.size());
        out.scheme_ = text.substr(0, begin);
        out.query_ = text.substr(end);
        out.hosts_.push_back({text.substr(begin, end - begin), {}, {}});
    }
    return out;
}

std::vector<std::size_t> pool_hosts::next_order(nanoseconds at) {
    std::vector<std::size_t> order(hosts_.size());
    const std::size_t first = turn_++;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = (first + i) % order.size();
    std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return hosts_[i].out_until <= at; });
    return order;
}

std::string pool_hosts::uri(const std::vector<std::size_t>& order) const {
    std::string out = scheme_;
    const char* joint = "";
    for (const std::size_t i : order) out += fmt::format("{}{}", std::exchange(joint, ","), hosts_[i].text);
    // The last of two options of one name counts. The pool itself replaces lost channels.
    return out + query_ + (query_.empty() ? '?' : '&') + "reconnect=false";
}

void pool_hosts::failed(std::size_t host, nanoseconds at) noexcept {
    hosts_[host].out_until = pause_ >= never - at ? never : at + pause_;
}

std::size_t pool_hosts::count_out(nanoseconds at) const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(hosts_, [at](const place& each) { return each.out_until > at; }));
}

}  // namespace accel::core
