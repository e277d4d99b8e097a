// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/arrivals.hpp"

#include "core/control/data_preamble.hpp"

#include <utility>

#include <openssl/crypto.h>

namespace accel::tcp {

void arrivals::expect(tcp_link& link, const core::link_config& config, bool encrypted) {
    const std::lock_guard lock(mutex_);
    expected_[config.session_id] = {&link, config.token, encrypted};
}

void arrivals::forget(std::uint64_t session_id, const tcp_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.find(session_id);
    if (found != expected_.end() && found->second.link == &link) expected_.erase(found);
    std::erase_if(arrived_, [&link](const arrival& each) { return each.link == &link; });
}

result<arrivals::expected> arrivals::claim(const core::data_connection& made) {
    const auto found = expected_.find(made.session_id);
    if (found == expected_.end()) return error{status::unauthorized, 0, "no such session waits for a connection here"};
    if (CRYPTO_memcmp(found->second.token.data(), made.token.data(), made.token.size()) != 0)
        return error{status::unauthorized, 0, "its token is not the session's"};
    if (found->second.encrypted != (made.tls != nullptr))
        return error{status::unauthorized, 0, "it is not encrypted as was agreed"};
    const expected out = found->second;
    expected_.erase(found);  // a token is good once
    return out;
}

result<void> arrivals::take(core::data_connection& made) {
    const std::lock_guard lock(mutex_);
    auto claimed = claim(made);
    if (!claimed) return claimed.error();
    core::answer_data(made, status::ok, {});
    arrived_.push_back({claimed->link, std::move(made)});
    waiting_.store(true, std::memory_order_release);
    signal_.set();
    return {};
}

std::vector<arrivals::arrival> arrivals::take_all() noexcept {
    const std::lock_guard lock(mutex_);
    waiting_.store(false, std::memory_order_relaxed);
    signal_.clear();
    return std::exchange(arrived_, {});
}

}  // namespace accel::tcp
