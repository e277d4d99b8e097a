// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_message.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr std::size_t max_scheme_bytes = 16;
constexpr std::size_t max_schemes = 16;
constexpr std::size_t max_offer_bytes = 96;  // `local` is offered with the process and name it is for
constexpr std::size_t max_text_bytes = 512;
constexpr nanoseconds min_peer_timeout = std::chrono::milliseconds{20};
constexpr nanoseconds max_peer_timeout = std::chrono::hours{24};
// Clock readings stay below 2^62 ns (146 years), so that differences and sums of two cannot overflow.
constexpr std::uint64_t clock_limit = std::uint64_t{1} << 62;

/// On the wire: the place of the body in `control_message`, counted from 1.
enum class kind : std::uint16_t {
    hello = 1,
    welcome,
    refused,
    query,
    offers,
    heartbeat,
    goodbye,
    find_target,
    target_found,
    cancel_calls,
    going_away,
    list_targets,
    targets_listed,
    check_health,
    health_checked
};

/// Writes fields. Has the functions of `reader`, so that `walk` names the fields of a message once for both ways.
class writer {
  public:
    template <class Number>
    void number(Number value) {
        static_assert(std::has_unique_object_representations_v<Number>);
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
    void peer_timeout(nanoseconds value) { time(std::clamp(value, min_peer_timeout, max_peer_timeout)); }
    void description(const link_description& value) {
        const auto length = std::min(value.size(), max_description_bytes);
        number(static_cast<std::uint16_t>(length));
        raw(std::span{value}.first(length));
    }
    void schemes(const std::vector<std::string>& all) {
        const auto count = std::min(all.size(), max_schemes);
        number(static_cast<std::uint8_t>(count));
        for (std::size_t i = 0; i < count; ++i) text<std::uint8_t>(all[i], max_offer_bytes);
    }
    void target_name(std::string_view value) { text<std::uint8_t>(value, max_target_bytes); }
    void optional_target_name(std::string_view value) { target_name(value); }
    void target_names(const std::vector<std::string>& all) {
        number(static_cast<std::uint16_t>(all.size()));
        for (const std::string& each : all) target_name(each);
    }
    void flag(bool value) { number(static_cast<std::uint8_t>(value ? 1 : 0)); }
    void calls(const std::vector<call_id>& all) {
        const auto count = std::min(all.size(), max_cancels);
        number(static_cast<std::uint16_t>(count));
        raw(std::as_bytes(std::span{all}.first(count)));
    }
    void require(bool) noexcept {}
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

  private:
    std::vector<std::byte> bytes_;
};

/// Reads within bounds; after the first failure everything reads as zero and `good` stays false.
class reader {
  public:
    explicit reader(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <class Number>
    void number(Number& value) {
        static_assert(std::has_unique_object_representations_v<Number>);
        value = {};
        raw(std::as_writable_bytes(std::span{&value, 1}));
    }
    void raw(std::span<std::byte> to) {
        if (const auto from = take(to.size()); !from.empty()) std::memcpy(to.data(), from.data(), to.size());
    }
    /// Printable ASCII only: it may end in a log or on a terminal.
    template <class Length>
    void text(std::string& value, std::size_t limit) {
        const auto from = take_counted<Length>(limit);
        value.resize(from.size());
        std::transform(from.begin(), from.end(), value.begin(), [](std::byte b) {
            const auto c = std::to_integer<unsigned char>(b);
            return c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
        });
    }
    void time(nanoseconds& value) {
        std::uint64_t count = 0;
        number(count);
        require(count < clock_limit);
        value = good_ ? nanoseconds{static_cast<std::int64_t>(count)} : nanoseconds{};
    }
    void peer_timeout(nanoseconds& value) {
        time(value);
        require(value >= min_peer_timeout && value <= max_peer_timeout);
    }
    void description(link_description& value) {
        const auto from = take_counted<std::uint16_t>(max_description_bytes);
        value.assign(from.begin(), from.end());
    }
    void schemes(std::vector<std::string>& all) {
        std::uint8_t count = 0;
        number(count);
        require(count <= max_schemes);
        for (unsigned i = 0; good_ && i < count; ++i) text<std::uint8_t>(all.emplace_back(), max_offer_bytes);
    }
    /// A name is compared, so no byte of it is replaced as in texts for people.
    void target_name(std::string& value) {
        const auto from = take_counted<std::uint8_t>(max_target_bytes);
        value.assign(reinterpret_cast<const char*>(from.data()), from.size());
        require(is_target_name(value));
    }
    void optional_target_name(std::string& value) {
        const auto from = take_counted<std::uint8_t>(max_target_bytes);
        value.assign(reinterpret_cast<const char*>(from.data()), from.size());
        require(value.empty() || is_target_name(value));
    }
    /// Ascending, so that none comes twice.
    void target_names(std::vector<std::string>& all) {
        std::uint16_t count = 0;
        number(count);
        require(count <= max_targets);
        for (unsigned i = 0; good_ && i < count; ++i) {
            target_name(all.emplace_back());
            require(i == 0 || all[i - 1] < all[i]);
        }
    }
    void flag(bool& value) {
        std::uint8_t read = 0;
        number(read);
        require(read <= 1);
        value = read == 1;
    }
    void calls(std::vector<call_id>& all) {
        std::uint16_t count = 0;
        number(count);
        require(count >= 1 && count <= max_cancels);
        if (good_) all.resize(count);
        raw(std::as_writable_bytes(std::span{all}));
        for (const call_id& each : all) require(each.slot < max_slots && each.generation != 0);
    }
    void require(bool condition) { good_ = good_ && condition; }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] bool finished() const { return good_ && rest_.empty(); }

  private:
    [[nodiscard]] std::span<const std::byte> take(std::size_t count) {
        require(rest_.size() >= count);
        if (!good_) return {};
        const auto front = rest_.first(count);
        rest_ = rest_.subspan(count);
        return front;
    }
    template <class Length>
    [[nodiscard]] std::span<const std::byte> take_counted(std::size_t limit) {
        Length length = 0;
        number(length);
        require(length <= limit);
        return take(length);
    }

    std::span<const std::byte> rest_;
    bool good_ = true;
};

// The fields of each message, in the order of the wire. `Io` is a writer or a reader.

template <class Io, class Geometry>
void walk_geometry(Io& io, Geometry& geometry) {
    io.number(geometry.slots);
    io.number(geometry.request_bytes);
    io.number(geometry.response_bytes);
    io.require(geometry.slots >= 1 && geometry.slots <= max_slots);
    io.require(geometry.request_bytes <= max_payload_bytes && geometry.response_bytes <= max_payload_bytes);
}

template <class Io, class Stamps>
void walk_clocks(Io& io, Stamps& clocks) {
    io.time(clocks.echo);
    io.time(clocks.received);
    io.time(clocks.sent);
}

template <class Io, class Status>
void walk_failure(Io& io, Status& code) {
    io.number(code);
    io.require(code != status::ok && static_cast<std::uint16_t>(code) < status_count);
}

/// A message of type `Message`, const for a writer.
template <class Message, class Body>
concept body_of = std::same_as<std::remove_const_t<Message>, Body>;

template <class Io, body_of<hello> Message>
void walk(Io& io, Message& m) {
    auto& asked = m.request;
    io.number(asked.version);
    walk_geometry(io, asked.wanted);
    io.peer_timeout(asked.peer_timeout);
    io.number(asked.priority);
    io.require(asked.priority <= stream_priority::high);
    io.time(m.sent);
    io.template text<std::uint8_t>(asked.scheme, max_scheme_bytes);
    io.description(asked.description);
}

template <class Io, body_of<welcome> Message>
void walk(Io& io, Message& m) {
    auto& grant = m.grant;
    io.number(grant.session_id);
    io.require(grant.session_id != 0);
    io.raw(grant.token);
    walk_geometry(io, grant.granted);
    io.peer_timeout(grant.peer_timeout);
    io.raw(m.boot);
    walk_clocks(io, m.clocks);
    io.description(grant.description);
}

template <class Io, body_of<refused> Message>
void walk(Io& io, Message& m) {
    walk_failure(io, m.code);
    io.template text<std::uint16_t>(m.why, max_text_bytes);
}

template <class Io, body_of<query> Message>
void walk(Io&, Message&) {}

template <class Io, body_of<offers> Message>
void walk(Io& io, Message& m) {
    io.schemes(m.schemes);
}

template <class Io, body_of<heartbeat> Message>
void walk(Io& io, Message& m) {
    walk_clocks(io, m.clocks);
}

template <class Io, body_of<goodbye> Message>
void walk(Io& io, Message& m) {
    io.number(m.session_id);
    walk_failure(io, m.why);
}

template <class Io, body_of<find_target> Message>
void walk(Io& io, Message& m) {
    io.target_name(m.name);
}

template <class Io, body_of<target_found> Message>
void walk(Io& io, Message& m) {
    io.number(m.number);
    io.require(m.number != 0);
}

template <class Io, body_of<cancel_calls> Message>
void walk(Io& io, Message& m) {
    io.number(m.session_id);
    io.calls(m.calls);
}

template <class Io, body_of<going_away> Message>
void walk(Io&, Message&) {}

template <class Io, body_of<list_targets> Message>
void walk(Io& io, Message& m) {
    io.optional_target_name(m.after);
}

template <class Io, body_of<targets_listed> Message>
void walk(Io& io, Message& m) {
    io.target_names(m.page.names);
    io.flag(m.page.more);
    io.require(!m.page.more || !m.page.names.empty());
}

template <class Io, body_of<check_health> Message>
void walk(Io& io, Message& m) {
    io.optional_target_name(m.name);
}

template <class Io, body_of<health_checked> Message>
void walk(Io& io, Message& m) {
    io.number(m.state);
    io.require(m.state <= health_state::not_serving);
}

/// Reads the body of that kind. False: there is no such kind.
template <std::size_t... Places>
bool walk_kind(reader& in, kind what, control_message& message, std::index_sequence<Places...>) {
    return (
        (static_cast<std::size_t>(what) == Places + 1 && (walk(in, message.body.template emplace<Places>()), true)) ||
        ...);
}

/// The beginning of every message.
struct message_head {
    std::uint32_t magic = 0x4c454341;  // "ACEL"
    std::uint16_t version = control_version;
    kind what{};
    std::uint64_t request = 0;
};
static_assert(sizeof(message_head) == 16);

/// True: bytes of a control message of whatever version.
bool read_head(reader& in, message_head& out) {
    in.number(out);
    return in.good() && out.magic == message_head{}.magic;
}

}  // namespace

std::vector<std::byte> encode_control(const control_message& message) {
    writer out;
    out.number(message_head{.what = static_cast<kind>(message.body.index() + 1), .request = message.request});
    std::visit([&out](const auto& body) { walk(out, body); }, message.body);
    return out.take();
}

result<control_message> decode_control(std::span<const std::byte> bytes) {
    reader in{bytes};
    message_head head;
    if (!read_head(in, head)) return error{status::protocol_error, 0, "it is not a control message of accel_transport"};
    if (head.version != control_version)
        return error{
            status::version_mismatch, 0,
            fmt::format("it has control message version {}, and this end speaks version {}; update the older end",
                        head.version, control_version)};
    result<control_message> read{control_message{head.request, {}}};
    control_message& message = *read;
    constexpr std::make_index_sequence<std::variant_size_v<decltype(message.body)>> all_kinds;
    const auto number = static_cast<std::uint16_t>(head.what);
    if (!walk_kind(in, head.what, message, all_kinds))
        return error{status::protocol_error, 0, fmt::format("it has the unknown kind {}", number)};
    if (!in.finished())
        return error{status::protocol_error, 0,
                     fmt::format("its {} bytes are not a well-formed message of kind {}", bytes.size(), number)};
    return read;
}

namespace {

/// The request number of bytes that begin like a message of one of these kinds; else 0.
std::uint64_t request_of(std::span<const std::byte> bytes, std::initializer_list<kind> kinds) noexcept {
    reader in{bytes};
    message_head head;
    return read_head(in, head) && std::ranges::find(kinds, head.what) != kinds.end() ? head.request : 0;
}

}  // namespace

std::uint64_t question_of_malformed(std::span<const std::byte> bytes) noexcept {
    return request_of(bytes, {kind::hello, kind::query, kind::find_target, kind::list_targets, kind::check_health});
}

std::uint64_t answer_of_malformed(std::span<const std::byte> bytes) noexcept {
    return request_of(bytes,
                      {kind::welcome, kind::offers, kind::target_found, kind::targets_listed, kind::health_checked});
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
