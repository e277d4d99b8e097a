// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

namespace accel::examples::serving {

/// Answers requests at `loaded_models_target`. The answers are lent from the host's memory, because the room for a
/// response may be on a GPU. Must outlive the server; its context must outlive it.
class loaded_list {
  public:
    /// For lists of up to `most` models.
    loaded_list(context& ctx, std::size_t most);

    /// False: there was no memory for it.
    [[nodiscard]] bool usable() const noexcept { return !answers_.empty(); }
    /// From now on these models are loaded. One thread at a time. Waits for no client: where answers under way still
    /// need the memory of all lists, it takes more. Without memory, questions fail until the next call.
    void set(std::span<const target> loaded);
    /// Any thread.
    void tell(exchange request) noexcept;

  private:
    struct answer {
        region memory;
        slice content;
        std::atomic<std::uint32_t> leases{0};
    };

    [[nodiscard]] answer* idle();
    [[nodiscard]] answer* add();

    context& ctx_;
    std::size_t most_;
    std::deque<answer> answers_;
    std::atomic<answer*> current_;
    std::atomic<std::uint32_t> telling_{0};  ///< handlers that may have read `current_`, and hold no lease yet
};

}  // namespace accel::examples::serving
