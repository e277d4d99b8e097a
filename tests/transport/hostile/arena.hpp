// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/peer_process.hpp"
#include "hostile/wire.hpp"
#include "patience.hpp"
#include "unit/control_fixture.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::hostile {

/// True in a build with a sanitizer, which has files and memory of its own.
[[nodiscard]] bool sanitized();

using core::testing::key_folder;
using tests::patience;
using tests::time_factor;

/// Where a server of this scheme listens, alone on this machine; without parameters.
[[nodiscard]] std::string listen_uri(const std::string& scheme);

/// A file that takes the standard error of a server; gone with this.
class log_file {
  public:
    log_file();
    ~log_file();
    log_file(const log_file&) = delete;
    log_file& operator=(const log_file&) = delete;
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::string text() const;
    /// Waits until the log has this text.
    [[nodiscard]] bool tells(const std::string& text, std::chrono::nanoseconds within = std::chrono::seconds{3}) const;

  private:
    std::string path_;
    unique_fd fd_;
};

/// A server in a process of its own, and what the kernel says of that process.
class victim : public tests::peer_process {
  public:
    struct counters {
        std::uint32_t sessions = 0;
        std::uint64_t lost = 0;
        std::uint64_t requests = 0;
        std::uint64_t memory_bytes = 0;
    };

    /// `limits`: those of hostile_peer.
    victim(const std::string& uri, const std::vector<std::string>& limits, int error_fd);
    [[nodiscard]] const std::string& uri() const { return uri_; }
    [[nodiscard]] target where() const;
    [[nodiscard]] bool alive() const;
    [[nodiscard]] std::size_t descriptors() const;
    /// Each with what it is open on.
    [[nodiscard]] std::string descriptors_as_text() const;
    [[nodiscard]] std::size_t resident_bytes() const;
    [[nodiscard]] counters counts();
    /// Ends it with SIGTERM; how long that took. Nothing: it did not end within five seconds.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> terminate();

  private:
    std::string uri_;
};

/// A client that calls each millisecond, on a thread of its own.
class good_client {
  public:
    good_client(const std::string& uri, const channel_options& options);
    ~good_client();
    good_client(const good_client&) = delete;
    good_client& operator=(const good_client&) = delete;

    [[nodiscard]] std::uint64_t calls() const { return calls_.load(); }
    /// Makes no calls, and takes no time from others, until told otherwise.
    void rest(bool resting) { resting_.store(resting); }
    /// What has gone wrong; empty if nothing has.
    [[nodiscard]] std::string trouble() const;
    [[nodiscard]] std::chrono::nanoseconds longest_call() const { return std::chrono::nanoseconds{longest_.load()}; }

  private:
    void run();
    [[nodiscard]] std::string call_once(std::uint64_t number);
    context context_;
    channel channel_;
    std::atomic<bool> stop_{false};
    std::atomic<bool> resting_{false};
    std::atomic<std::uint64_t> calls_{0};
    std::atomic<std::int64_t> longest_{0};
    mutable std::mutex mutex_;
    std::string trouble_;
    std::thread thread_;
};

/// One of an attack's threads: attacks until `go` is false.
using attack = std::function<void(const target&, const std::atomic<bool>& go)>;

/// An attack under way, until this is destroyed.
class siege {
  public:
    siege(const attack& what, const target& at, int threads);
    ~siege();
    siege(const siege&) = delete;
    siege& operator=(const siege&) = delete;

  private:
    std::atomic<bool> go_{true};
    std::vector<std::thread> threads_;
};

/// A server, two clients that were there before the attack, and what must hold while attackers are at work.
/// Parameter: with keys or without.
class arena : public ::testing::TestWithParam<bool> {
  protected:
    struct siege_options {
        int threads = 1;
        std::chrono::milliseconds lasts{200};
    };

    [[nodiscard]] bool keyed() const { return GetParam(); }
    /// `options`: of the server's URI, "&" in front. `limits`: of hostile_peer.
    void open(const std::string& options = {}, const std::vector<std::string>& limits = {});
    [[nodiscard]] std::string server_uri(const std::string& options) const;
    /// Attacks, and checks all that has to hold meanwhile and afterwards.
    void endure(const attack& what, const siege_options& options);
    void endure(const attack& what) { endure(what, siege_options{}); }
    struct named_attack {
        const char* name;
        attack what;
        siege_options options{};
    };
    /// Opens, and endures one after another.
    void endure_all(const std::vector<named_attack>& all);
    /// Nothing was lost, and the server has let go of what the attack took.
    void expect_unharmed();
    /// A client that comes now is served within its time-outs.
    void expect_newcomer_served(const std::string& when);

    [[nodiscard]] channel_options client_options(const std::string& who = "client") const;
    [[nodiscard]] identity client_keys(const std::string& who = "client") const;

    std::string scheme_ = "tcp";  ///< of the server and the clients
    /// What allocators keep after a flood.
    std::size_t resident_margin_ = std::size_t{48} << 20;
    key_folder folder_;
    log_file log_;
    std::unique_ptr<victim> server_;
    std::vector<std::unique_ptr<good_client>> clients_;

  private:
    [[nodiscard]] bool serves_newcomer(const std::string& when);
    std::size_t descriptors_ = 0;
    std::size_t resident_ = 0;
};

inline std::string with_or_without_keys(const ::testing::TestParamInfo<bool>& info) {
    return info.param ? "keys" : "insecure";
}

}  // namespace accel::hostile
