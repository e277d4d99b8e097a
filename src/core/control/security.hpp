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
#include <utility>
#include <vector>

namespace accel::core {

/// One end's security options, loaded. Shared by its control plane and its data paths.
struct security_identity {
    security_options options;                 ///< with absolute paths
    std::shared_ptr<const credentials> keys;  ///< null when insecure
    std::string files;                        ///< `stamp_of_files`, before they were read

    [[nodiscard]] bool insecure() const noexcept { return options.insecure; }
    /// True: a data path that can encrypt does.
    [[nodiscard]] bool encrypts() const noexcept { return !insecure() && options.encrypt != encryption::off; }
    /// Whom the certificate of a server at `host` must name.
    [[nodiscard]] const std::string& name_of(const std::string& host) const noexcept {
        return options.server_name.empty() ? host : options.server_name;
    }
    /// Two ends of equal digest may share a control connection: they have the same keys, from the same files.
    [[nodiscard]] std::string digest() const;
};

/// Changes when a file that the options name is written, replaced, or given to somebody else.
[[nodiscard]] std::string stamp_of_files(const security_options& options);
/// How often files are looked at. One that has not changed meanwhile is not half written.
inline constexpr std::chrono::milliseconds key_look_interval{200};

/// Keys or `anonymous` with `insecure` are `invalid_argument`; so are certificates with pinned keys.
[[nodiscard]] result<void> check_key_options(const security_options& options);

/// Checks and loads what the options name. Neither keys nor `insecure`: `unauthorized`, with a sentence that
/// says how to make keys.
[[nodiscard]] result<std::shared_ptr<const security_identity>> load_client_security(const security_options& options);

/// The same keys for a server at one address of `name`, unless the client's `options` have another name. `keys` may be
/// null.
[[nodiscard]] std::shared_ptr<const security_identity> named_after(std::shared_ptr<const security_identity> keys,
                                                                   const security_options& options,
                                                                   const std::string& name);

/// The keys of one end, which may change while it runs. Thread-safe.
class live_security {
  public:
    [[nodiscard]] static result<std::shared_ptr<live_security>> of_server(const security_options& options);
    /// Of a client that begins with these keys.
    explicit live_security(std::shared_ptr<const security_identity> loaded) : live_security(std::move(loaded), false) {}

    [[nodiscard]] std::shared_ptr<const security_identity> current() const;
    /// Rises when `current` changes.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
    /// Reads the files again. When that fails, what was loaded stays in force.
    [[nodiscard]] result<void> reload();
    /// Reloads if a file has changed and then rested for a moment. To be called a few times a second.
    void look_at_files();
    [[nodiscard]] bool has_files() const noexcept { return !options_.insecure; }

  private:
    live_security(std::shared_ptr<const security_identity> loaded, bool server);
    const security_options options_;
    const bool server_;
    mutable std::mutex mutex_;
    std::shared_ptr<const security_identity> current_;
    std::atomic<std::uint64_t> generation_{1};
    std::string loaded_stamp_;  ///< of the files that were loaded, or could not be
    std::string last_stamp_;
    nanoseconds next_look_{};
};

}  // namespace accel::core
