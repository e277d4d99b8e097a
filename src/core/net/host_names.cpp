// SPDX-License-Identifier: Apache-2.0
#include "core/net/host_names.hpp"

#include "core/fork_guard.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>

namespace accel::core {
namespace {

struct address_list_owner {
    void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

/// One name, which one thread looks up.
struct name_lookup {
    explicit name_lookup(std::string name) : host(std::move(name)) {}
    const std::string host;
    bool done = false;
    name_outcome outcome{};
};

/// All lookups of a process. Never destroyed: nobody waits for the threads, not even when the process ends.
class name_lookups {
  public:
    /// Null: not in time. `busy`: because other names have all threads.
    [[nodiscard]] std::shared_ptr<const name_lookup> finish(const std::string& host, nanoseconds deadline,
                                                            const std::stop_token& stopped, bool& busy) {
        if (stopped.stop_requested()) return {};
        std::unique_lock lock(mutex_);
        busy = !wait(lock, deadline, stopped, [&] { return find(host) || running_.size() < max_lookups; });
        if (busy) return {};
        auto found = find(host);
        if (!found) found = start(host);
        return wait(lock, deadline, stopped, [&] { return found->done; }) ? found : nullptr;
    }

  private:
    template <class Condition>
    bool wait(std::unique_lock<std::mutex>& lock, nanoseconds deadline, const std::stop_token& stopped,
              const Condition& condition) {
        if (deadline == never) return changed_.wait(lock, stopped, condition);
        return changed_.wait_until(lock, stopped, std::chrono::steady_clock::time_point{deadline}, condition);
    }

    [[nodiscard]] std::shared_ptr<name_lookup> find(const std::string& host) const noexcept {
        const auto at = std::ranges::find(running_, host, &name_lookup::host);
        return at != running_.end() ? *at : nullptr;
    }

    [[nodiscard]] std::shared_ptr<name_lookup> start(const std::string& host) {
        auto made = std::make_shared<name_lookup>(host);
        running_.push_back(made);
        try {
            start_thread("accel-names", [this, made] { run(*made); }).detach();
        } catch (...) {
            running_.pop_back();
            throw;
        }
        return made;
    }

    void run(name_lookup& own) noexcept {
        name_outcome outcome{EAI_MEMORY};
        try {
            outcome = ask_resolver(own.host.c_str(), 0);
        } catch (const std::bad_alloc&) {
        }
        const std::lock_guard lock(mutex_);
        own.outcome = std::move(outcome);
        own.done = true;
        std::erase_if(running_, [&](const auto& each) { return each.get() == &own; });
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::vector<std::shared_ptr<name_lookup>> running_;
};

constinit per_process<name_lookups> all_lookups;

}  // namespace

name_outcome ask_resolver(const char* host, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    name_outcome out;
    out.failure = ::getaddrinfo(host, "0", &hints, &found);
    out.native = out.failure == EAI_SYSTEM ? errno : 0;
    const std::unique_ptr<addrinfo, address_list_owner> list(found);
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        socket_address& address = out.addresses.emplace_back();
        address.length = each->ai_addrlen;
        std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    }
    return out;
}

error cannot_resolve(const std::string& host, const name_outcome& outcome) {
    const int failure = outcome.failure;
    if (failure == EAI_MEMORY) throw std::bad_alloc();
    if (failure == EAI_SYSTEM && is_shortage(outcome.native))
        return no_descriptor("to resolve host " + host, outcome.native);
    if (failure == EAI_SYSTEM)
        return {status::system_error, outcome.native,
                fmt::format("cannot resolve host '{}': {}; give an address", host, std::strerror(outcome.native))};
    if (failure == EAI_AGAIN)
        return {status::peer_lost, failure,
                fmt::format("cannot resolve host '{}' now ({}): its name server does not answer; try again, or give an "
                            "address",
                            host, ::gai_strerror(failure))};
    return {
        status::invalid_argument, failure,
        fmt::format("cannot resolve host '{}' ({}); check the name or give an address", host, ::gai_strerror(failure))};
}

result<std::vector<socket_address>> look_up(const std::string& host, nanoseconds deadline,
                                            const std::stop_token& stopped) {
    bool busy = false;
    const auto found = all_lookups.get().finish(host, deadline, stopped, busy);
    if (found == nullptr && stopped.stop_requested())
        return error{status::closed, 0, fmt::format("the lookup of host '{}' was stopped", host)};
    if (found == nullptr)
        return error{status::timed_out, 0,
                     fmt::format("host '{}' was not resolved in time: {}; try again, or give an address", host,
                                 busy ? "other lookups are waiting for name servers that do not answer"
                                      : "its name server does not answer")};
    if (found->outcome.failure != 0) return cannot_resolve(host, found->outcome);
    return found->outcome.addresses;
}

}  // namespace accel::core
