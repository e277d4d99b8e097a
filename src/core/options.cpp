// SPDX-License-Identifier: Apache-2.0
#include "core/control/security.hpp"
#include "core/option_keys.hpp"
#include "core/protocol.hpp"
#include "core/quantities.hpp"
#include "core/uri.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace accel::core {
namespace {

using std::chrono::nanoseconds;

constexpr std::array<unit, 5> rate_units{
    {{"b/s", 1}, {"kb/s", 1'000}, {"Mb/s", 1'000'000}, {"Gb/s", 1'000'000'000}, {"Tb/s", 1'000'000'000'000}}};
constexpr std::uint64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// Without a sign, a unit or blanks.
template <class Number>
bool parse_plain(std::string_view text, Number& out) {
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, out);
    return failure == std::errc{} && stop == end;
}

}  // namespace

bool parse_value(std::string_view text, std::uint32_t& out) {
    return parse_plain(text, out);
}
bool parse_value(std::string_view text, std::uint16_t& out) {
    return parse_plain(text, out);
}
bool parse_value(std::string_view text, int& out) {
    return parse_plain(text, out);
}
bool parse_value(std::string_view text, std::size_t& out) {
    auto read = parse_size(text);
    if (read) out = *read;
    return read.ok();
}
bool parse_value(std::string_view text, nanoseconds& out) {
    auto read = parse_duration(text);
    if (read) out = *read;
    return read.ok();
}
bool parse_value(std::string_view text, bit_rate& out) {
    const auto read = text == "0" ? std::optional<std::uint64_t>(0) : parse_quantity(text, rate_units, no_limit);
    if (read) out = {*read};
    return read.has_value();
}
bool parse_value(std::string_view text, bool& out) {
    out = text == "true" || text == "1" || text == "on";
    return out || text == "false" || text == "0" || text == "off";
}
bool parse_value(std::string_view text, std::string& out) {
    out = text;
    return true;
}

bool parse_value(std::string_view text, memory_kind& out) {
    if (text == "host") {
        out = memory_kind::host();
        return true;
    }
    std::uint16_t device = 0;
    if (!text.starts_with("cuda:") || !parse_value(text.substr(5), device) || device > 255) return false;
    out = memory_kind::cuda(static_cast<std::int16_t>(device));
    return true;
}

namespace {

using core::parse_value;

bool parse_value(std::string_view text, poll_mode& out) {
    return find_name<poll_mode>(
        text, {{"busy", poll_mode::busy}, {"adaptive", poll_mode::adaptive}, {"block", poll_mode::block}}, out);
}
bool parse_value(std::string_view text, stream_priority& out) {
    return find_name<stream_priority>(text, {{"high", stream_priority::high}, {"normal", stream_priority::normal}},
                                      out);
}
bool parse_value(std::string_view text, encryption& out) {
    return find_name<encryption>(
        text, {{"auto", encryption::automatic}, {"required", encryption::required}, {"off", encryption::off}}, out);
}

}  // namespace

template <>
constexpr std::string_view expected<poll_mode> = "busy, adaptive or block";
template <>
constexpr std::string_view expected<stream_priority> = "normal or high";
template <>
constexpr std::string_view expected<encryption> = "auto, required or off";

namespace {

#define ACCEL_OPTION(options, field) ACCEL_OPTION_OF(options, , field)
/// The options of RDMA devices, which both ends have.
#define ACCEL_VERBS_OPTIONS(options)                                                          \
    ACCEL_OPTION_OF(options, .verbs, device), ACCEL_OPTION_OF(options, .verbs, gid_index),    \
        ACCEL_OPTION_OF(options, .verbs, mtu), ACCEL_OPTION_OF(options, .verbs, ack_timeout), \
        ACCEL_OPTION_OF(options, .verbs, ack_retries), ACCEL_OPTION_OF(options, .verbs, direct)
/// `peer_keys`: where this end finds the public keys of its peers.
#define ACCEL_SECURITY_OPTIONS(options, peer_keys)                                                    \
    ACCEL_OPTION_OF(options, .security, key_file), ACCEL_OPTION_OF(options, .security, peer_keys),    \
        ACCEL_OPTION_OF(options, .security, cert_file), ACCEL_OPTION_OF(options, .security, ca_file), \
        ACCEL_OPTION_OF(options, .security, encrypt), ACCEL_OPTION_OF(options, .security, insecure)

constexpr std::array channel_keys{
    ACCEL_OPTION(channel_options, slots),
    ACCEL_OPTION(channel_options, request_bytes),
    ACCEL_OPTION(channel_options, response_bytes),
    ACCEL_OPTION(channel_options, connect_timeout),
    ACCEL_OPTION(channel_options, connect_retry),
    ACCEL_OPTION(channel_options, call_timeout),
    ACCEL_OPTION(channel_options, quarantine_timeout),
    ACCEL_OPTION(channel_options, close_timeout),
    ACCEL_OPTION(channel_options, peer_timeout),
    ACCEL_OPTION(channel_options, poll),
    ACCEL_OPTION(channel_options, spin),
    ACCEL_OPTION(channel_options, priority),
    ACCEL_OPTION(channel_options, reconnect),
    ACCEL_OPTION(channel_options, backoff_min),
    ACCEL_OPTION(channel_options, backoff_max),
    ACCEL_OPTION(channel_options, zerocopy),
    ACCEL_OPTION(channel_options, pacing),
    ACCEL_VERBS_OPTIONS(channel_options),
    ACCEL_SECURITY_OPTIONS(channel_options, server_key),
    ACCEL_OPTION_OF(channel_options, .security, server_name),
};

constexpr std::array server_keys{
    ACCEL_OPTION(server_options, workers),
    ACCEL_OPTION(server_options, max_sessions),
    ACCEL_OPTION(server_options, max_slots),
    ACCEL_OPTION(server_options, max_request_bytes),
    ACCEL_OPTION(server_options, max_response_bytes),
    ACCEL_OPTION(server_options, max_memory_bytes),
    ACCEL_OPTION(server_options, max_exchanges),
    ACCEL_OPTION(server_options, max_client_sessions),
    ACCEL_OPTION(server_options, max_client_memory_bytes),
    ACCEL_OPTION(server_options, max_connections),
    ACCEL_OPTION(server_options, max_client_connections),
    ACCEL_OPTION(server_options, max_handshakes),
    ACCEL_OPTION(server_options, memory),
    ACCEL_OPTION(server_options, streams),
    ACCEL_OPTION(server_options, priority_streams),
    ACCEL_OPTION(server_options, stream_per_session),
    ACCEL_OPTION(server_options, pin_slots),
    ACCEL_OPTION(server_options, peer_timeout),
    ACCEL_OPTION(server_options, drain_timeout),
    ACCEL_OPTION(server_options, poll),
    ACCEL_OPTION(server_options, spin),
    ACCEL_OPTION(server_options, data_port),
    ACCEL_OPTION(server_options, zerocopy),
    ACCEL_OPTION(server_options, pacing),
    ACCEL_VERBS_OPTIONS(server_options),
    ACCEL_SECURITY_OPTIONS(server_options, authorized_keys),
    ACCEL_OPTION_OF(server_options, .security, anonymous),
};
#undef ACCEL_OPTION
#undef ACCEL_VERBS_OPTIONS
#undef ACCEL_SECURITY_OPTIONS

/// Of this end, or one of `more`.
template <class Options, std::size_t Count>
result<void> set_option(const std::array<option_key<Options>, Count>& keys, std::string_view name,
                        std::string_view value, Options& options, further_keys* more) {
    auto set = core::set_option(keys, name, value, options);
    if (set && !*set && more != nullptr) set = more->set(name, value);
    if (!set) return set.error();
    if (*set) return {};
    std::string known = names_of(keys);
    if (more != nullptr) known += fmt::format(", {}", more->names());
    return error{status::invalid_argument, 0, fmt::format("unknown option '{}'; the options are: {}", name, known)};
}

result<void> check(const security_options& options) {
    if (auto good = check_key_options(options); !good) return good;
    if (options.insecure && options.encrypt == encryption::required)
        return out_of_bounds("encrypt", "auto or off with insecure: without keys nothing is encrypted");
    return {};
}

result<void> check(const verbs_options& options) {
    const std::uint32_t mtu = options.mtu;
    if (mtu != 0 && mtu != 256 && mtu != 512 && mtu != 1024 && mtu != 2048 && mtu != 4096)
        return out_of_bounds("mtu", "256, 512, 1024, 2048 or 4096");
    if (options.gid_index < -1 || options.gid_index > 255) return out_of_bounds("gid_index", "-1 to 255");
    if (options.ack_timeout <= nanoseconds{0}) return out_of_bounds("ack_timeout", "more than 0");
    if (options.ack_retries > 6) return out_of_bounds("ack_retries", "0 to 6");
    return {};
}

/// Slower than this a heartbeat would take longer than a peer's patience.
constexpr std::uint64_t slowest_pacing = 1'000'000;
constexpr std::uint64_t fastest_pacing = 100'000'000'000'000;

result<void> check(bit_rate pacing) {
    const std::uint64_t rate = pacing.bits_per_second;
    if (rate != 0 && (rate < slowest_pacing || rate > fastest_pacing))
        return out_of_bounds("pacing", "0, or 1Mb/s to 100Tb/s");
    return {};
}

constexpr nanoseconds shortest_peer_timeout = std::chrono::milliseconds{20};

template <class Interceptor>
result<void> check(const std::vector<std::shared_ptr<Interceptor>>& interceptors) {
    if (std::ranges::find(interceptors, nullptr) == interceptors.end()) return {};
    return error{status::invalid_argument, 0, "one of options.interceptors is null"};
}

result<channel_options> checked(channel_options options) {
    if (options.slots == 0 || options.slots > max_slots) return out_of_bounds("slots", "1 to 65536");
    if (options.request_bytes > max_payload_bytes) return out_of_bounds("request_bytes", "at most 1GiB");
    if (options.response_bytes > max_payload_bytes) return out_of_bounds("response_bytes", "at most 1GiB");
    if (options.peer_timeout < shortest_peer_timeout) return out_of_bounds("peer_timeout", "at least 20ms");
    for (const auto& [name, value] : {std::pair{"connect_timeout", options.connect_timeout},
                                      {"call_timeout", options.call_timeout},
                                      {"close_timeout", options.close_timeout},
                                      {"backoff_min", options.backoff_min}})
        if (value <= nanoseconds{0}) return out_of_bounds(name, "more than 0");
    if (options.connect_retry < nanoseconds{0}) return out_of_bounds("connect_retry", "0 or more");
    if (options.quarantine_timeout < nanoseconds{0}) return out_of_bounds("quarantine_timeout", "0 or more");
    if (options.backoff_max < options.backoff_min) return out_of_bounds("backoff_max", "at least backoff_min");
    if (options.spin < nanoseconds{0}) return out_of_bounds("spin", "0 or more");
    if (auto good = check(options.pacing); !good) return good.error();
    if (auto good = check(options.security); !good) return good.error();
    if (auto good = check(options.verbs); !good) return good.error();
    if (auto good = check(options.interceptors); !good) return good.error();
    return options;
}

result<server_options> checked(server_options options) {
    if (options.workers > 256) return out_of_bounds("workers", "0 to 256");
    if (options.max_sessions == 0) return out_of_bounds("max_sessions", "1 or more");
    if (options.max_slots == 0 || options.max_slots > max_slots) return out_of_bounds("max_slots", "1 to 65536");
    if (options.max_request_bytes > max_payload_bytes) return out_of_bounds("max_request_bytes", "at most 1GiB");
    if (options.max_response_bytes > max_payload_bytes) return out_of_bounds("max_response_bytes", "at most 1GiB");
    if (options.max_exchanges == 0) return out_of_bounds("max_exchanges", "1 or more");
    if (options.max_connections == 0) return out_of_bounds("max_connections", "1 or more");
    if (options.max_handshakes < 4) return out_of_bounds("max_handshakes", "4 or more");
    if (options.peer_timeout < shortest_peer_timeout) return out_of_bounds("peer_timeout", "at least 20ms");
    if (options.drain_timeout < nanoseconds{0}) return out_of_bounds("drain_timeout", "0 or more");
    if (options.spin < nanoseconds{0}) return out_of_bounds("spin", "0 or more");
    if (options.data_port != 0 && options.data_port + std::max(options.workers, 1U) > 65'536)
        return out_of_bounds("data_port", "lower: worker n uses port data_port + n, and the last port is 65535");
    if (options.streams == 0 || options.streams > 128) return out_of_bounds("streams", "1 to 128");
    if (options.priority_streams == 0 || options.priority_streams > 128)
        return out_of_bounds("priority_streams", "1 to 128");
    if (auto good = check(options.pacing); !good) return good.error();
    if (auto good = check(options.security); !good) return good.error();
    if (auto good = check(options.verbs); !good) return good.error();
    if (auto good = check(options.interceptors); !good) return good.error();
    return options;
}

}  // namespace

result<channel_options> apply_options(const uri& source, channel_options options, further_keys* more) {
    for (const auto& [name, value] : source.options)
        if (auto set = set_option(channel_keys, name, value, options, more); !set) return set.error();
    return checked(std::move(options));
}

result<server_options> apply_options(const std::vector<uri>& sources, server_options options, further_keys* more) {
    std::vector<std::pair<std::string, std::string>> seen;
    for (const uri& source : sources) {
        for (const auto& [name, value] : source.options) {
            for (const auto& [other_name, other_value] : seen) {
                if (other_name == name && other_value != value) {
                    return error{
                        status::invalid_argument, 0,
                        fmt::format(
                            "option {} is given as '{}' and as '{}'; options count for the whole server, so give each "
                            "only once",
                            name, other_value, value)};
                }
            }
            seen.emplace_back(name, value);
            if (auto set = set_option(server_keys, name, value, options, more); !set) return set.error();
        }
    }
    return checked(std::move(options));
}

}  // namespace accel::core
