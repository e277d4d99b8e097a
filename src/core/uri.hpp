// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// `scheme://host:port?key=value&key=value` (RFC 3986 in so far as it applies; IPv6 hosts in brackets).
/// `local://name` and `shm://name` have a name in place of host and port.
struct uri {
    bool dns = false;  ///< `dns+scheme://`: each address of the host is a server
    std::string scheme;
    std::string host;  ///< local: the name; shm: `@` and the name, as of a Unix socket
    std::uint16_t port = 0;
    std::string name;  ///< with `dns+`, once `host` is an address: the name that had it; no part of the text
    std::vector<std::pair<std::string, std::string>> options;  ///< as written, percent-decoded

    /// As if the text did not have this option.
    void remove(std::string_view key) {
        std::erase_if(options, [key](const auto& each) { return each.first == key; });
    }
    /// "scheme://host:port": for people, without options or keys.
    [[nodiscard]] std::string text() const;
};

[[nodiscard]] inline bool is_same_server(const uri& a, const uri& b) noexcept {
    return a.host == b.host && a.port == b.port && a.name == b.name;
}

/// One host: a list of several is an error, for servers as well. An option that comes twice is one. `unsupported`: a
/// scheme that no build has.
[[nodiscard]] result<uri> parse_uri(std::string_view text);

/// The same for a client: `*` and port 0 are errors, `dns+` is not.
[[nodiscard]] result<uri> parse_client_uri(std::string_view text);

/// Each host of a client's URI.
[[nodiscard]] result<std::vector<uri>> parse_client_uris(std::string_view text);

/// What is said of a text that is not a port, wherever one is read.
[[nodiscard]] std::string not_a_port(std::string_view text);

inline constexpr std::size_t max_hosts = 64;  ///< in one URI

/// `tcp://a:1,b:2?slots=4` as `tcp://a:1?slots=4` and `tcp://b:2?slots=4`: at least one, which may be no good URI.
[[nodiscard]] result<std::vector<std::string>> one_host_each(std::string_view text);

/// Keys of a URI beside those of `channel_options` or `server_options`.
class further_keys {
  public:
    virtual ~further_keys() = default;
    /// False: not one of these.
    [[nodiscard]] virtual result<bool> set(std::string_view name, std::string_view value) = 0;
    /// For people: "a, b".
    [[nodiscard]] virtual std::string names() const = 0;
};

/// Sets the fields that the URI names; a misspelt key is an error that lists the right ones.
[[nodiscard]] result<channel_options> apply_options(const uri& source, channel_options options,
                                                    further_keys* more = nullptr);

/// The same for a server, over all its URIs: two that disagree on a key are an error.
[[nodiscard]] result<server_options> apply_options(const std::vector<uri>& sources, server_options options,
                                                   further_keys* more = nullptr);

}  // namespace accel::core
