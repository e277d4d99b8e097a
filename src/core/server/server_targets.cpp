// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/nearest_names.hpp"
#include "core/server/interception.hpp"
#include "core/server/server_core.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

/// Targets of a server, which may come and go while it serves. Its workers have lists of their own (`target_table`).
namespace accel::core {
namespace {

/// Characters that name targets, in an error and in the answer to a request.
constexpr std::size_t room_for_names = 320;

}  // namespace

result<void> server_core::check_new_target(std::string_view name) const {
    if (!is_target_name(name)) {
        return error{status::invalid_argument, 0,
                     fmt::format("the target '{}' is not a valid name: expected 1 to {} printable characters without "
                                 "blanks",
                                 name, max_target_bytes)};
    }
    if (targets_.contains(name))
        return error{status::invalid_argument, 0,
                     fmt::format("this server has the target '{}' already; remove it first", name)};
    if (const auto same = numbers_.find(target_of(name).number); same != numbers_.end()) {
        return error{status::invalid_argument, 0,
                     fmt::format("the targets '{}' and '{}' have the same number; rename one", same->second, name)};
    }
    if (targets_.size() == max_targets)
        return error{status::invalid_argument, 0, fmt::format("a server has at most {} targets", max_targets)};
    return {};
}

result<void> server_core::set_targets(const std::vector<std::string>& names) {
    decltype(targets_) old;
    const std::lock_guard lock(mutex_);
    old.swap(targets_);
    std::map<std::uint32_t, std::string_view> old_numbers;
    old_numbers.swap(numbers_);
    for (const std::string& each : names) {
        if (auto good = check_new_target(each); !good) {
            targets_.swap(old);
            numbers_.swap(old_numbers);
            return good;
        }
        const auto made = targets_.emplace(each, named_target{}).first;
        numbers_.emplace(target_of(each).number, made->first);
    }
    return {};
}

result<void> server_core::add_targets(const std::vector<service_table::entry>& added) {
    // Before the lock, which metrics take while they hold their own.
    if (metrics_registry* const metrics = context_->metrics(); metrics != nullptr)
        for (const service_table::entry& each : added)
            if (is_target_name(each.name)) metrics->name_target(each.name);
    std::vector<target_table::publication> lists;  // ends after the lock: handlers may end with it
    const std::lock_guard lock(mutex_);
    if (workers_.empty()) return error{status::closed, 0, "the server has stopped"};
    std::size_t made = 0;
    const auto undo = [&] {
        for (const service_table::entry& each : std::span(added).first(made)) {
            numbers_.erase(target_of(each.name).number);
            targets_.erase(each.name);
        }
    };
    try {
        for (const service_table::entry& each : added) {
            if (auto good = each.service ? check_new_target(each.name) : no_handler(); !good) {
                undo();
                return good;
            }
            const auto place = targets_.emplace(each.name, named_target{each.service}).first;
            ++made;
            numbers_.emplace(target_of(each.name).number, place->first);
        }
        publish_targets(added, {}, names_text(room_for_names), lists);
    } catch (...) {
        undo();
        throw;
    }
    return {};
}

result<void> server_core::remove_target(std::string_view name) {
    std::vector<target_table::publication> lists;
    decltype(targets_)::node_type gone;
    const std::lock_guard lock(mutex_);
    const auto found = targets_.find(name);
    if (found == targets_.end()) return no_such_target(name);
    const std::uint32_t number = target_of(name).number;
    publish_targets({}, {&number, 1}, names_text(room_for_names, {}, name), lists);
    numbers_.erase(number);
    gone = targets_.extract(found);
    return {};
}

result<void> server_core::set_health(std::string_view name, health_state state) {
    const std::lock_guard lock(mutex_);
    const auto found = targets_.find(name);
    if (!name.empty() && found == targets_.end()) return no_such_target(name);
    (name.empty() ? health_ : found->second.health) = state;
    return {};
}

/// A target serves no better than its server.
health_state server_core::check_health(std::string_view name) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = targets_.find(name);
    if (!name.empty() && found == targets_.end()) return health_state::unknown;
    if (draining_) return health_state::not_serving;
    return name.empty() || health_ != health_state::serving ? health_ : found->second.health;
}

/// To all workers, or throws.
void server_core::publish_targets(std::span<const service_table::entry> added, std::span<const std::uint32_t> removed,
                                  std::string names, std::vector<target_table::publication>& lists) {
    const std::string text = "this server has no such target; " + std::move(names);
    for (worker* each : workers_) {
        std::vector<std::shared_ptr<served_target>> made;
        for (const service_table::entry& one : added) {
            const std::uint32_t number = target_of(one.name).number;
            const std::size_t place = each->metrics() != nullptr ? each->metrics()->place_of(number) : 0;
            made.push_back(std::make_shared<served_target>(one.name, intercepted(one.service, options_), place));
        }
        lists.push_back(each->targets().changed(made, removed, text));
    }
    for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i]->publish_targets(lists[i]);
}

std::string server_core::names_text(std::size_t room, std::string_view wanted, std::string_view without) const {
    std::vector<std::string_view> names;
    for (const auto& [name, target] : targets_)
        if (name != without) names.push_back(name);
    return list_names(names, room, wanted);
}

error server_core::no_such_target(std::string_view name) const {
    return {status::not_found, 0,
            fmt::format("this server has no target '{}'; {}", name, names_text(room_for_names, name))};
}

result<std::uint32_t> server_core::find_target(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    if (targets_.contains(name)) return target_of(name).number;
    return no_such_target(name);
}

target_page server_core::list_targets(std::string_view after) const {
    target_page out;
    std::size_t bytes = 0;
    const std::lock_guard lock(mutex_);
    for (auto each = targets_.upper_bound(after); each != targets_.end(); ++each) {
        bytes += 1 + each->first.size();
        out.more = bytes > target_page::max_bytes;
        if (out.more) break;
        out.names.push_back(each->first);
    }
    return out;
}

}  // namespace accel::core
