// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// A target at one worker. A name that is removed and added again has a new one.
struct served_target {
    served_target(std::string its_name, handler its_service, std::size_t its_place)
        : name(std::move(its_name)),
          number(target_of(name).number),
          place(its_place),
          service(std::move(its_service)) {}

    const std::string name;
    const std::uint32_t number;
    const std::size_t place;  ///< in the worker's `server_metrics`
    const handler service;

    // For the worker's thread.
    std::uint32_t users = 0;  ///< exchanges without an answer, and calls of `service` that have not returned
    bool removed = false;
    std::shared_ptr<served_target> next_removed;
};

/// The targets of a worker at one time, by number, and what a request for another one is told.
struct target_list {
    std::vector<std::shared_ptr<served_target>> all;
    std::string names;

    /// Null: there is none.
    [[nodiscard]] served_target* find(std::uint32_t number) const noexcept;
};

/// The targets of a worker. Another thread publishes a new list, and the worker's next request that names a target
/// finds that list. A removed target stays until its last user has left.
class target_table {
  public:
    target_table() = default;
    target_table(const target_table&) = delete;
    target_table& operator=(const target_table&) = delete;
    ~target_table() { delete next_.load(std::memory_order_relaxed); }

    /// A new list, and the worker's copy of it.
    struct publication {
        std::unique_ptr<target_list> own;
        std::unique_ptr<target_list> for_worker;
    };

    // Any thread, one at a time.
    /// The list with `added`, and without the targets of these numbers; `names` go with it.
    [[nodiscard]] publication changed(std::span<const std::shared_ptr<served_target>> added,
                                      std::span<const std::uint32_t> removed, std::string names) const;
    /// From now on the worker has these. `list` keeps what they replace, to be destroyed where handlers may be.
    void publish(publication& list) noexcept;

    // The worker's thread.
    [[nodiscard]] served_target* find(std::uint32_t number) noexcept {
        if (next_.load(std::memory_order_acquire) != nullptr) [[unlikely]]
            adopt();
        return current_->find(number);
    }
    /// What a request for another target is told.
    [[nodiscard]] std::string_view names() const noexcept { return current_->names; }
    /// Takes the list that was published last, if it has not yet.
    void adopt() noexcept;
    static void hold(served_target& used) noexcept { ++used.users; }
    void release(served_target& used) noexcept {
        if (--used.users == 0 && used.removed) [[unlikely]]
            forget(used);
    }

  private:
    void retire(const std::shared_ptr<served_target>& gone) noexcept;
    void forget(const served_target& unused) noexcept;

    std::unique_ptr<target_list> published_ = std::make_unique<target_list>();  ///< for whoever publishes
    std::atomic<target_list*> next_{nullptr};
    std::unique_ptr<target_list> current_ = std::make_unique<target_list>();  ///< the worker's
    std::shared_ptr<served_target> removed_;                                  ///< those that are in use, linked
};

}  // namespace accel::core
