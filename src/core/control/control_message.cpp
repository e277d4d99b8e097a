// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_message.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr std::uint32_t magic = 0x4c454341;  // "ACEL"
constexpr std::size_t max_scheme_bytes = 16;
constexpr std::size_t max_schemes = 16;
constexpr std::size_t max_offer_bytes = 96;  // `local` is offered with the process and name it is for
constexpr std::size_t max_text_bytes = 512;
constexpr nanoseconds min_peer_timeout = std::chrono::milliseconds{20};
constexpr nanoseconds max_peer_timeout = std::chrono::hours{24};
// Clock readings stay below 2^62 ns (146 years), so that differences and sums of two cannot overflow.
constexpr std::uint64_t clock_limit = std::uint64_t{1} << 62;

enum class kind : std::uint16_t {
    hello = 1,
    welcome = 2,
    refused = 3,
    query = 4,
    offers = 5,
    heartbeat = 6,
    goodbye = 7,
    find_target = 8,
    target_found = 9,
};

class writer {
  public:
    template <class Number>
    void number(Number value) {
        static_assert(std::is_unsigned_v<Number>);
        const std::size_t at = bytes_.size();
        bytes_.resize(at + sizeof value);
        std::memcpy(bytes_.data() + at, &value, sizeof value);
    }
    void raw(std::span<const std::byte> from) { bytes_.insert(bytes_.end(), from.begin(), from.end()); }
    template <class Length>
    void text(std::string_view value, std::size_t limit) {
        value = value.substr(0, limit);
        number(static_cast<Length>(value.size()));
        raw(std::as_bytes(std::span{value.data(), value.size()}));
    }
    void time(nanoseconds value) {
        const auto count = value.count() < 0 ? 0U : static_cast<std::uint64_t>(value.count());
        number(std::min(count, clock_limit - 1));
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

  private:
    std::vector<std::byte> bytes_;
};

/// Reads within bounds; after the first failure everything reads as zero and `good` stays false.
class reader {
  public:
    explicit reader(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <class Number>
    [[nodiscard]] Number number() {
        static_assert(std::is_unsigned_v<Number>);
        Number value = 0;
        if (const auto from = take(sizeof value); !from.empty()) std::memcpy(&value, from.data(), sizeof value);
        return value;
    }
    [[nodiscard]] std::span<const std::byte> take(std::size_t count) {
        if (!good_ || rest_.size() < count) {
            good_ = false;
            return {};
        }
        const auto front = rest_.first(count);
        rest_ = rest_.subspan(count);
        return front;
    }
    /// Printable ASCII only: it may end in a log or on a terminal.
    template <class Length>
    [[nodiscard]] std::string text(std::size_t limit) {
        const auto length = number<Length>();
        require(length <= limit);
        const auto from = take(length);
        std::string value(from.size(), '\0');
        std::transform(from.begin(), from.end(), value.begin(), [](std::byte b) {
            const auto c = std::to_integer<unsigned char>(b);
            return c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
        });
        return value;
    }
    [[nodiscard]] nanoseconds time() {
        const auto count = number<std::uint64_t>();
        require(count < clock_limit);
        return good_ ? nanoseconds{static_cast<std::int64_t>(count)} : nanoseconds{};
    }
    template <std::size_t Count>
    void copy(std::array<std::byte, Count>& to) {
        if (const auto from = take(Count); !from.empty()) std::memcpy(to.data(), from.data(), Count);
    }
    void require(bool condition) { good_ = good_ && condition; }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] bool finished() const { return good_ && rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
    bool good_ = true;
};

void put_geometry(writer& out, const link_geometry& geometry) {
    out.number(geometry.slots);
    out.number(geometry.request_bytes);
    out.number(geometry.response_bytes);
}

link_geometry get_geometry(reader& in) {
    link_geometry geometry;
    geometry.slots = in.number<std::uint32_t>();
    geometry.request_bytes = in.number<std::uint64_t>();
    geometry.response_bytes = in.number<std::uint64_t>();
    in.require(geometry.slots >= 1 && geometry.slots <= max_slots);
    in.require(geometry.request_bytes <= max_payload_bytes && geometry.response_bytes <= max_payload_bytes);
    return geometry;
}

void put_peer_timeout(writer& out, nanoseconds value) {
    out.time(std::clamp(value, min_peer_timeout, max_peer_timeout));
}

nanoseconds get_peer_timeout(reader& in) {
    const nanoseconds value = in.time();
    in.require(value >= min_peer_timeout && value <= max_peer_timeout);
    return value;
}

stream_priority get_priority(reader& in) {
    const auto value = in.number<std::uint8_t>();
    in.require(value <= static_cast<std::uint8_t>(stream_priority::high));
    return value == static_cast<std::uint8_t>(stream_priority::high) ? stream_priority::high : stream_priority::normal;
}

void put_description(writer& out, const link_description& description) {
    const auto length = std::min(description.size(), max_description_bytes);
    out.number(static_cast<std::uint16_t>(length));
    out.raw(std::span{description}.first(length));
}

link_description get_description(reader& in) {
    const auto length = in.number<std::uint16_t>();
    in.require(length <= max_description_bytes);
    const auto from = in.take(length);
    return {from.begin(), from.end()};
}

void put_clocks(writer& out, const clock_stamps& clocks) {
    out.time(clocks.echo);
    out.time(clocks.received);
    out.time(clocks.sent);
}

clock_stamps get_clocks(reader& in) {
    clock_stamps clocks;
    clocks.echo = in.time();
    clocks.received = in.time();
    clocks.sent = in.time();
    return clocks;
}

kind put(writer& out, const hello& m) {
    out.number(m.request.version_min);
    out.number(m.request.version_max);
    put_geometry(out, m.request.wanted);
    put_peer_timeout(out, m.request.peer_timeout);
    out.number(static_cast<std::uint8_t>(m.request.priority));
    out.time(m.sent);
    out.text<std::uint8_t>(m.request.scheme, max_scheme_bytes);
    put_description(out, m.request.description);
    return kind::hello;
}

hello get_hello(reader& in) {
    hello m;
    m.request.version_min = in.number<std::uint16_t>();
    m.request.version_max = in.number<std::uint16_t>();
    in.require(m.request.version_min <= m.request.version_max);
    m.request.wanted = get_geometry(in);
    m.request.peer_timeout = get_peer_timeout(in);
    m.request.priority = get_priority(in);
    m.sent = in.time();
    m.request.scheme = in.text<std::uint8_t>(max_scheme_bytes);
    m.request.description = get_description(in);
    return m;
}

kind put(writer& out, const welcome& m) {
    out.number(m.grant.session_id);
    out.raw(m.grant.token);
    out.number(m.grant.version);
    put_geometry(out, m.grant.granted);
    put_peer_timeout(out, m.grant.peer_timeout);
    out.raw(m.boot);
    put_clocks(out, m.clocks);
    put_description(out, m.grant.description);
    return kind::welcome;
}

welcome get_welcome(reader& in) {
    welcome m;
    m.grant.session_id = in.number<std::uint64_t>();
    in.require(m.grant.session_id != 0);
    in.copy(m.grant.token);
    m.grant.version = in.number<std::uint16_t>();
    m.grant.granted = get_geometry(in);
    m.grant.peer_timeout = get_peer_timeout(in);
    in.copy(m.boot);
    m.clocks = get_clocks(in);
    m.grant.description = get_description(in);
    return m;
}

status get_failure(reader& in) {
    const auto code = in.number<std::uint16_t>();
    in.require(code != 0 && code < status_count);
    return static_cast<status>(code);
}

kind put(writer& out, const refused& m) {
    out.number(static_cast<std::uint16_t>(m.code));
    out.text<std::uint16_t>(m.why, max_text_bytes);
    return kind::refused;
}

refused get_refused(reader& in) {
    refused m;
    m.code = get_failure(in);
    m.why = in.text<std::uint16_t>(max_text_bytes);
    return m;
}

kind put(writer&, const query&) {
    return kind::query;
}

kind put(writer& out, const offers& m) {
    const auto count = std::min(m.schemes.size(), max_schemes);
    out.number(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i) out.text<std::uint8_t>(m.schemes[i], max_offer_bytes);
    return kind::offers;
}

offers get_offers(reader& in) {
    offers m;
    const auto count = in.number<std::uint8_t>();
    in.require(count <= max_schemes);
    for (unsigned i = 0; in.good() && i < count; ++i) m.schemes.push_back(in.text<std::uint8_t>(max_offer_bytes));
    return m;
}

kind put(writer& out, const heartbeat& m) {
    put_clocks(out, m.clocks);
    return kind::heartbeat;
}

kind put(writer& out, const goodbye& m) {
    out.number(m.session_id);
    out.number(static_cast<std::uint16_t>(m.why));
    return kind::goodbye;
}

goodbye get_goodbye(reader& in) {
    goodbye m;
    m.session_id = in.number<std::uint64_t>();
    m.why = get_failure(in);
    return m;
}

kind put(writer& out, const find_target& m) {
    out.text<std::uint8_t>(m.name, max_target_bytes);
    return kind::find_target;
}

/// A name is compared, so no byte of it is replaced as in texts for people.
find_target get_find_target(reader& in) {
    const auto from = in.take(in.number<std::uint8_t>());
    find_target m{{reinterpret_cast<const char*>(from.data()), from.size()}};
    in.require(is_target_name(m.name));
    return m;
}

kind put(writer& out, const target_found& m) {
    out.number(m.number);
    return kind::target_found;
}

target_found get_target_found(reader& in) {
    target_found m{in.number<std::uint32_t>()};
    in.require(m.number != 0);
    return m;
}

}  // namespace

std::vector<std::byte> encode_control(const control_message& message) {
    writer body;
    const kind what = std::visit([&body](const auto& m) { return put(body, m); }, message.body);
    writer out;
    out.number(magic);
    out.number(control_version);
    out.number(static_cast<std::uint16_t>(what));
    out.number(message.request);
    const auto rest = body.take();
    out.raw(rest);
    return out.take();
}

result<control_message> decode_control(std::span<const std::byte> bytes) {
    reader in{bytes};
    control_message message;
    const bool ours = in.number<std::uint32_t>() == magic;
    const auto version = in.number<std::uint16_t>();
    const auto what = in.number<std::uint16_t>();
    message.request = in.number<std::uint64_t>();
    if (!in.good() || !ours) return error{status::protocol_error, 0, "it is not a control message of accel_transport"};
    if (version != control_version)
        return error{status::version_mismatch, 0,
                     fmt::format("it has control message version {}, and this end speaks version {}; update the "
                                 "older end",
                                 version, control_version)};
    switch (static_cast<kind>(what)) {
        case kind::hello:
            message.body = get_hello(in);
            break;
        case kind::welcome:
            message.body = get_welcome(in);
            break;
        case kind::refused:
            message.body = get_refused(in);
            break;
        case kind::query:
            message.body = query{};
            break;
        case kind::offers:
            message.body = get_offers(in);
            break;
        case kind::heartbeat:
            message.body = heartbeat{get_clocks(in)};
            break;
        case kind::goodbye:
            message.body = get_goodbye(in);
            break;
        case kind::find_target:
            message.body = get_find_target(in);
            break;
        case kind::target_found:
            message.body = get_target_found(in);
            break;
        default:
            return error{status::protocol_error, 0, fmt::format("it has the unknown kind {}", what)};
    }
    if (!in.finished())
        return error{status::protocol_error, 0,
                     fmt::format("its {} bytes do not make a well-formed message of kind {}", bytes.size(), what)};
    return message;
}

namespace {

/// The request number of bytes that begin like a message of one of these kinds; else 0.
std::uint64_t request_of(std::span<const std::byte> bytes, std::initializer_list<kind> kinds) noexcept {
    reader in{bytes};
    const bool ours = in.number<std::uint32_t>() == magic;
    static_cast<void>(in.number<std::uint16_t>());
    const auto what = static_cast<kind>(in.number<std::uint16_t>());
    const auto request = in.number<std::uint64_t>();
    return in.good() && ours && std::ranges::find(kinds, what) != kinds.end() ? request : 0;
}

}  // namespace

std::uint64_t question_of_malformed(std::span<const std::byte> bytes) noexcept {
    return request_of(bytes, {kind::hello, kind::query, kind::find_target});
}

std::uint64_t answer_of_malformed(std::span<const std::byte> bytes) noexcept {
    return request_of(bytes, {kind::welcome, kind::offers, kind::target_found});
}

boot_identity read_boot_identity() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string text;
    std::getline(file, text);
    boot_identity id{};
    std::size_t digits = 0;
    for (const char c : text) {
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) continue;
        if (digits == 2 * id.size()) return {};
        std::byte& target = id[digits / 2];
        target = (target << 4) | static_cast<std::byte>(value);
        ++digits;
    }
    return digits == 2 * id.size() ? id : boot_identity{};
}

}  // namespace accel::core
