// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
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
};

/// One server and the channels to it. Of the gateway's thread; it has no channels before the server was reached.
class upstream {
  public:
    upstream(std::string uri, std::vector<std::string> models, call_sizes needs = {})
        : uri_(std::move(uri)), models_(std::move(models)), needs_(needs) {}

    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    /// "tcp", as the URI says.
    [[nodiscard]] std::string_view scheme() const noexcept { return std::string_view{uri_}.substr(0, uri_.find(':')); }
    /// For which it is asked.
    [[nodiscard]] const std::vector<std::string>& models() const noexcept { return models_; }
    [[nodiscard]] const call_sizes& needs() const noexcept { return needs_; }
    /// It says which models it has loaded (`loaded_models_target`).
    [[nodiscard]] bool tells_models() const noexcept { return tells_models_; }
    void set_tells_models(bool tells) noexcept { tells_models_ = tells; }
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
    std::string uri_;
    std::vector<std::string> models_;
    call_sizes needs_;
    bool tells_models_ = false;
    std::deque<line> lines_;  ///< stay where they are
};

}  // namespace accel::examples::gateway
