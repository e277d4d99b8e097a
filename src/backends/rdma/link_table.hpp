#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::rdma {

class rdma_link;

/// From a queue pair's number to its link: a hash table with linear probing, at most half full. Grows when a
/// link is added, never while completions are looked up.
class link_table {
  public:
    link_table() = default;
    link_table(const link_table&) = delete;
    link_table& operator=(const link_table&) = delete;

    [[nodiscard]] rdma_link* find(std::uint32_t number) const noexcept {
        for (std::size_t i = place_of(number);; i = (i + 1) & mask()) {
            const entry& each = first_[i];
            if (each.link == nullptr || each.number == number) return each.link;
        }
    }
    void add(std::uint32_t number, rdma_link& link) {
        if ((count_ + 1) * 2 > entries_.size()) grow();
        put({number, &link});
        ++count_;
    }
    void remove(std::uint32_t number) noexcept {
        std::size_t hole = place_of(number);
        while (entries_[hole].link != nullptr && entries_[hole].number != number) hole = (hole + 1) & mask();
        if (entries_[hole].link == nullptr) return;
        --count_;
        // Those behind it move up, unless they would pass the place where they are looked for first.
        for (std::size_t i = (hole + 1) & mask(); entries_[i].link != nullptr; i = (i + 1) & mask()) {
            const std::size_t home = place_of(entries_[i].number);
            if (((i - home) & mask()) < ((i - hole) & mask())) continue;
            entries_[hole] = entries_[i];
            hole = i;
        }
        entries_[hole] = {};
    }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const entry& each : entries_) {
            if (each.link != nullptr) visit(*each.link);
        }
    }

  private:
    struct entry {
        std::uint32_t number = 0;
        rdma_link* link = nullptr;
    };
    [[nodiscard]] std::size_t mask() const noexcept { return mask_; }
    /// Numbers are handed out one after another, so their low bits spread well.
    [[nodiscard]] std::size_t place_of(std::uint32_t number) const noexcept { return number & mask(); }
    void put(const entry& made) noexcept {
        std::size_t i = place_of(made.number);
        while (entries_[i].link != nullptr) i = (i + 1) & mask();
        entries_[i] = made;
    }
    void grow() {
        std::vector<entry> old(entries_.size() * 2);
        old.swap(entries_);
        first_ = entries_.data();
        mask_ = entries_.size() - 1;
        for (const entry& each : old) {
            if (each.link != nullptr) put(each);
        }
    }

    std::vector<entry> entries_ = std::vector<entry>(16);
    // Of `entries_`.
    const entry* first_ = entries_.data();
    std::size_t mask_ = entries_.size() - 1;
    std::size_t count_ = 0;
};

}  // namespace accel::rdma
