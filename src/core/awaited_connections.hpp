// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/connection.hpp"
#include "core/control/data_preamble.hpp"
#include "core/event_signal.hpp"

#include <accel_transport/status.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <openssl/crypto.h>

namespace accel::core {

/// A server's data connections on their way from the control plane's thread, which takes them in, to the poller's. Each
/// session may have one, on its `Terms`. The poller gets what has `Arrived` for a link. Thread-safe.
template <class Link, class Terms, class Arrived>
class awaited_connections {
  public:
    struct arrival {
        Link* link = nullptr;
        Arrived connection;
    };

    awaited_connections() = default;
    awaited_connections(const awaited_connections&) = delete;
    awaited_connections& operator=(const awaited_connections&) = delete;

    /// From now on the link's client may connect, once.
    void expect(Link& link, std::uint64_t session_id, const session_token& token, Terms terms) {
        const std::lock_guard lock(mutex_);
        expected_.insert_or_assign(session_id, expected{&link, token, std::move(terms)});
    }
    /// Nothing arrives for the link any more. Idempotent.
    void forget(std::uint64_t session_id, const Link& link) noexcept {
        const std::lock_guard lock(mutex_);
        const auto found = expected_.find(session_id);
        if (found != expected_.end() && found->second.link == &link) expected_.erase(found);
        std::erase_if(arrived_, [&link](const arrival& each) { return each.link == &link; });
    }

    /// True if `take_all` may have something. Cheap.
    [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }
    [[nodiscard]] std::vector<arrival> take_all() noexcept {
        const std::lock_guard lock(mutex_);
        waiting_.store(false, std::memory_order_relaxed);
        signal_.clear();
        return std::exchange(arrived_, {});
    }
    /// Readable while something waits.
    [[nodiscard]] int fd() const noexcept { return signal_.fd(); }

  protected:
    ~awaited_connections() = default;

    /// Checks session and token and keeps the connection for the poller. `admit(terms, made)` checks the rest, answers
    /// the connection, and returns what has arrived: a `result<Arrived>`.
    template <class Admit>
    [[nodiscard]] result<void> take_if(data_connection& made, const Admit& admit) {
        const std::lock_guard lock(mutex_);
        const auto found = expected_.find(made.session_id);
        // A stranger does not learn which sessions there are.
        if (found == expected_.end() ||
            CRYPTO_memcmp(found->second.token.data(), made.token.data(), made.token.size()) != 0)
            return refuse_without_session();
        const expected& awaited = found->second;
        result<Arrived> admitted = admit(awaited.terms, made);
        if (!admitted) return admitted.error();
        arrived_.push_back({awaited.link, std::move(admitted).value()});
        expected_.erase(found);  // a token is good once
        waiting_.store(true, std::memory_order_release);
        signal_.set();
        return {};
    }

  private:
    struct expected {
        Link* link;
        session_token token;
        Terms terms;
    };

    std::mutex mutex_;
    std::unordered_map<std::uint64_t, expected> expected_;
    std::vector<arrival> arrived_;
    std::atomic<bool> waiting_{false};
    wake_signal signal_;
};

}  // namespace accel::core
