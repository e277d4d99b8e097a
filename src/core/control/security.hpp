// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/tls/credentials.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace accel::core {

/// One end's security options, loaded. Shared by its control plane and its data paths.
struct security_identity {
    bool insecure = false;
    encryption encrypt = encryption::automatic;
    std::shared_ptr<const credentials> keys;  ///< null when insecure
    std::string files;                        ///< `stamp_of_files`, before they were read

    /// True: a data path that can encrypt does.
    [[nodiscard]] bool encrypts() const noexcept { return !insecure && encrypt != encryption::off; }
    /// Two ends of equal digest may share a control connection.
    [[nodiscard]] std::string digest() const { return keys ? keys->digest() : std::string{"insecure"}; }
};

/// Changes when a file that the options name is written, replaced, or given to somebody else.
[[nodiscard]] std::string stamp_of_files(const security_options& options);
/// How often files are looked at. One that has not changed meanwhile is not half written.
inline constexpr std::chrono::milliseconds key_look_interval{200};

/// They are read again later, when the process may have another working directory.
[[nodiscard]] security_options with_absolute_paths(security_options options);

/// Keys and `insecure` together are `invalid_argument`; so are certificates and pinned keys.
[[nodiscard]] result<void> check_key_options(const security_options& options);

/// Checks and loads what the options name. Neither keys nor `insecure`: `unauthorized`, with a sentence that
/// says how to make keys.
[[nodiscard]] result<std::shared_ptr<const security_identity>> load_client_security(const security_options& options);

/// The keys of a server, which may change while it runs. Thread-safe.
class server_security {
  public:
    [[nodiscard]] static result<std::shared_ptr<server_security>> load(const security_options& options);

    [[nodiscard]] std::shared_ptr<const security_identity> current() const;
    /// Rises when `current` changes.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
    /// Reads the files again. When that fails, what was loaded stays in force.
    [[nodiscard]] result<void> reload();
    /// Reloads if a file has changed and then rested for a moment. To be called a few times a second.
    void look_at_files();
    [[nodiscard]] bool has_files() const noexcept { return !options_.insecure; }

  private:
    explicit server_security(const security_options& options) : options_(options) {}
    const security_options options_;
    mutable std::mutex mutex_;
    std::shared_ptr<const security_identity> current_;
    std::atomic<std::uint64_t> generation_{1};
    std::string loaded_stamp_;  ///< of the files that were loaded, or could not be
    std::string last_stamp_;
    nanoseconds next_look_{};
};

}  // namespace accel::core
