// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/arrivals.hpp"

#include "core/control/data_preamble.hpp"

#include <array>
#include <span>
#include <utility>

#include <openssl/crypto.h>

namespace accel::shm {

void arrivals::expect(shm_link& link, std::uint64_t session_id, offer made) {
    const std::lock_guard lock(mutex_);
    expected_.insert_or_assign(session_id, expected{&link, std::move(made)});
}

void arrivals::forget(std::uint64_t session_id, const shm_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.find(session_id);
    if (found != expected_.end() && found->second.link == &link) expected_.erase(found);
    std::erase_if(arrived_, [&link](const arrival& each) { return each.link == &link; });
}

/// Its memory goes to whoever shows the token, and to nobody else.
result<void> arrivals::admit(const expected& awaited, const core::data_connection& made) const {
    const offer& own = awaited.made;
    if (CRYPTO_memcmp(own.token.data(), made.token.data(), made.token.size()) != 0)
        return error{status::unauthorized, 0, "its token is not the session's"};
    const std::array all{own.requests.get(), own.responses.get(), page_, own.gpu_requests.get(),
                         own.gpu_responses.get()};
    const std::size_t passed = own.gpu_responses.open() ? all.size() : always_passed;
    if (send_descriptors(made.socket.get(), core::encode_data_answer(status::ok, {}), std::span(all).first(passed)))
        return {};
    return error{status::system_error, errno, "no shared memory could be passed to it"};
}

result<void> arrivals::take(core::data_connection& made) {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.find(made.session_id);
    if (found == expected_.end()) return error{status::unauthorized, 0, "no such session waits for a connection here"};
    if (auto admitted = admit(found->second, made); !admitted) return admitted;
    arrived_.push_back({found->second.link, std::move(made.socket)});
    expected_.erase(found);  // a token is good once
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

}  // namespace accel::shm
