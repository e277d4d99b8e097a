// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::examples::gateway {

class upstream;

/// One channel to a server.
struct line {
    channel path;
    upstream* to = nullptr;
    std::uint32_t in_flight = 0;
    bool armed = false;    ///< its descriptor tells when there is something to do
    void* user = nullptr;  ///< what belongs to this line elsewhere
};

/// What the calls to a server need at least; 0: what its URI says, or a channel's default.
struct call_sizes {
    std::size_t request_bytes = 0;
    std::size_t response_bytes = 0;
    std::uint32_t slots = 0;
    std::size_t metadata_bytes = 0;  ///< besides, of a request and of an answer, if the server accepts that
};

/// A `dns+` URI: each address of its host is a server. They may change.
struct server_name {
    std::string uri;
    std::vector<std::string> models;  ///< empty text: requests without a target
    call_sizes needs{};
};

/// Whether the URI has `dns+`.
[[nodiscard]] inline bool is_name(std::string_view uri) noexcept {
    return uri.starts_with("dns+");
}

/// One server and the channels to it. Of the gateway's thread; it has no channels before the server was reached.
class upstream {
  public:
    /// `name`: has to outlive it. Null: the options name this server itself.
    upstream(std::string uri, std::vector<std::string> models, call_sizes needs = {}, const server_name* name = nullptr)
        : uri_(std::move(uri)), models_(std::move(models)), needs_(needs), name_(name) {}

    /// Of no other server of this process, also of one that is gone. Not 0.
    [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    /// "tcp", as the URI says.
    [[nodiscard]] std::string_view scheme() const noexcept { return std::string_view{uri_}.substr(0, uri_.find(':')); }
    /// For which it is asked; empty text: requests without a target.
    [[nodiscard]] const std::vector<std::string>& models() const noexcept { return models_; }
    [[nodiscard]] const call_sizes& needs() const noexcept { return needs_; }
    /// It says which models it has loaded (`loaded_models_target`).
    [[nodiscard]] bool tells_models() const noexcept { return tells_models_; }
    void set_tells_models(bool tells) noexcept { tells_models_ = tells; }
    [[nodiscard]] const server_name* name() const noexcept { return name_; }
    /// Its name still has it.
    [[nodiscard]] bool listed() const noexcept { return listed_; }
    void unlist() noexcept { listed_ = false; }
    /// It gets no further calls, and goes when it has none.
    [[nodiscard]] bool leaving() const noexcept { return leaving_; }
    void leave() noexcept { leaving_ = true; }
    /// One of a name that is away.
    [[nodiscard]] bool is_missed() const noexcept { return name_ != nullptr && !leaving_ && !connected(); }
    /// All of it, at its end.
    [[nodiscard]] std::vector<channel> take_channels() {
        std::vector<channel> out;
        for (line& each : lines_) out.push_back(std::move(each.path));
        lines_.clear();
        return out;
    }
    [[nodiscard]] bool connected() const noexcept {
        return std::ranges::any_of(lines_, [](const line& each) { return each.path.connected(); });
    }
    line& add(channel made) { return lines_.emplace_back(line{std::move(made), this}); }
    [[nodiscard]] std::deque<line>& lines() noexcept { return lines_; }
    [[nodiscard]] std::uint32_t in_flight() const noexcept {
        std::uint32_t sum = 0;
        for (const line& each : lines_) sum += each.in_flight;
        return sum;
    }
    /// Begins a call on the channel with the fewest in flight. Null: `why` is `again` if one is connected and has no
    /// free slot, else `peer_lost`.
    [[nodiscard]] line* begin(call_view& out, status& why) noexcept {
        return begin(out, why, [](const line&) { return true; });
    }
    /// The same, on channels of which `may` is true.
    template <typename Predicate>
    [[nodiscard]] line* begin(call_view& out, status& why, Predicate may) noexcept {
        line* best = nullptr;
        why = status::peer_lost;
        for (line& each : lines_) {
            if (!each.path.connected()) continue;
            why = status::again;
            if (!may(each)) continue;
            if (best == nullptr || each.in_flight < best->in_flight) best = &each;
        }
        if (best == nullptr) return nullptr;
        const auto begun = best->path.begin();
        if (begun) {
            out = *begun;
            return best;
        }
        if (begun.error() != status::again) why = status::peer_lost;
        return nullptr;
    }

  private:
    static inline std::atomic<std::uint64_t> last_serial{0};

    std::uint64_t serial_ = ++last_serial;
    std::string uri_;
    std::vector<std::string> models_;
    call_sizes needs_;
    const server_name* name_;
    bool tells_models_ = false;
    bool listed_ = true;
    bool leaving_ = false;
    std::deque<line> lines_;  ///< stay where they are
};

/// The server with this URI that a name does not have any more.
inline void unlist(std::list<upstream>& servers, const server_name& of, std::string_view uri) {
    const auto is_it = [&](const upstream& each) { return each.name() == &of && each.uri() == uri && each.listed(); };
    std::ranges::find_if(servers, is_it)->unlist();
}

/// Servers that were removed from their name begin to leave, and `then(server)` is called for each: not before another
/// one of the name is connected.
template <typename Then>
void leave_unlisted(std::list<upstream>& servers, Then then) {
    for (upstream& each : servers) {
        const auto replaces = [&each](const upstream& other) {
            return other.name() == each.name() && other.listed() && other.connected();
        };
        if (each.listed() || each.leaving() || std::ranges::none_of(servers, replaces)) continue;
        each.leave();
        then(each);
    }
}

}  // namespace accel::examples::gateway
