// SPDX-License-Identifier: Apache-2.0
#include "core/server/target_table.hpp"

#include <algorithm>

namespace accel::core {
namespace {

std::uint32_t number_of(const std::shared_ptr<served_target>& each) noexcept {
    return each->number;
}

}  // namespace

served_target* target_list::find(std::uint32_t number) const noexcept {
    const auto found = std::ranges::lower_bound(all, number, {}, number_of);
    return found != all.end() && (*found)->number == number ? found->get() : nullptr;
}

target_table::publication target_table::changed(std::span<const std::shared_ptr<served_target>> added,
                                                std::span<const std::uint32_t> removed, std::string names) const {
    auto out = std::make_unique<target_list>();
    out->all.reserve(published_->all.size() + added.size());
    const auto stays = [&](const std::shared_ptr<served_target>& each) {
        return std::ranges::find(removed, each->number) == removed.end();
    };
    std::ranges::copy_if(published_->all, std::back_inserter(out->all), stays);
    out->all.insert(out->all.end(), added.begin(), added.end());
    std::ranges::sort(out->all, {}, number_of);
    out->names = std::move(names);
    auto copy = std::make_unique<target_list>(*out);
    return {std::move(out), std::move(copy)};
}

void target_table::publish(publication& list) noexcept {
    published_.swap(list.own);
    list.for_worker.reset(next_.exchange(list.for_worker.release(), std::memory_order_acq_rel));
}

void target_table::adopt() noexcept {
    const std::unique_ptr<target_list> fresh(next_.exchange(nullptr, std::memory_order_acquire));
    if (fresh == nullptr) return;
    std::swap(*current_, *fresh);
    for (const std::shared_ptr<served_target>& each : fresh->all)
        if (current_->find(each->number) != each.get()) retire(each);
}

void target_table::retire(const std::shared_ptr<served_target>& gone) noexcept {
    if (gone->users == 0) return;
    gone->removed = true;
    gone->next_removed = std::exchange(removed_, gone);
}

void target_table::forget(const served_target& unused) noexcept {
    std::shared_ptr<served_target>* link = &removed_;
    while (link->get() != &unused) link = &(*link)->next_removed;
    const std::shared_ptr<served_target> gone = std::move(*link);
    *link = std::move(gone->next_removed);
}

}  // namespace accel::core
