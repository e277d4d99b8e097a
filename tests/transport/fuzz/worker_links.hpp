// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/worker.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace accel::tests {

class worker_link;

/// What happens to all links of a worker, in its order.
struct link_world {
    explicit link_world(input_reader& from) : input(from) {}
    input_reader& input;
    std::deque<core::link_event> events;
    std::vector<worker_link*> links;  ///< that exist
    std::uint64_t lost = 0;           ///< sessions
    std::uint64_t freed = 0;
    bool ending = false;  ///< links have room, and close at once
};

/// A link of a worker: its memory, and how it begins and ends. It closes when the input says so.
class worker_link : public core::link {
  public:
    worker_link(link_world& in, const core::link_geometry& shape)
        : links_(in),
          sent_(shape.slots * stride),
          received_(shape.slots * stride),
          send_(core::slot_memory::over(sent_.data(), shape.slots, shape.response_bytes, stride)),
          receive_(core::slot_memory::over(received_.data(), shape.slots, shape.request_bytes, stride)) {
        links_.links.push_back(this);
    }
    ~worker_link() override {
        require(closed_, "a link is closed before it ends");
        std::erase(links_.links, this);
    }
    worker_link(const worker_link&) = delete;
    worker_link& operator=(const worker_link&) = delete;

    core::link_description describe() const override { return {}; }
    result<void> attach(const core::link_grant&, core::nanoseconds) override { return {}; }
    void activate() override {}
    bool close() noexcept override {
        std::erase_if(links_.events, [&](const core::link_event& each) { return each.owner == owner; });
        closed_ = closed_ || links_.ending || links_.input.byte() % 2 == 0;
        return closed_;
    }
    bool retract(std::uint32_t) noexcept override { return true; }
    core::slot_memory& send() const noexcept override { return *send_; }
    core::slot_memory& receive() const noexcept override { return *receive_; }
    [[nodiscard]] bool closed() const { return closed_; }

    void* owner = nullptr;

  private:
    static constexpr std::size_t stride = 256 + 64;

    link_world& links_;
    std::vector<std::byte> sent_;
    std::vector<std::byte> received_;  ///< headers of nothing
    std::shared_ptr<core::slot_memory> send_;
    std::shared_ptr<core::slot_memory> receive_;
    bool closed_ = false;
};

/// A worker's sessions, of which each is lost once and then freed.
class observed_sessions : protected core::session_observer {
  protected:
    explicit observed_sessions(link_world& in) : links_(in) {}
    void session_lost(const core::session& which, status why) noexcept override {
        require(which.gone() && why != status::ok, "a session that is lost is gone");
        ++links_.lost;
    }
    void session_freed(const core::session& which) noexcept override {
        require(which.gone() && which.open() == 0, "nothing of it is used");
        ++links_.freed;
        std::erase(sessions_, &which);
    }
    core::session& pick() { return *sessions_[links_.input.byte() % sessions_.size()]; }

    std::vector<core::session*> sessions_;  ///< that exist

  private:
    link_world& links_;
};

}  // namespace accel::tests
