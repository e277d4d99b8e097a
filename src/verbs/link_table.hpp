#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::verbs {

class rdma_link;

/// From a queue pair's number to its link: a hash table with linear probing, at most half full. Grows when a
/// link is added, never while completions are looked up.
class link_table {
  public:
    /// Null: there is none.
    [[nodiscard]] rdma_link* find(std::uint32_t number) noexcept {
        if (last_.link == nullptr || number != last_.number) last_ = {number, look_up(number)};
        return last_.link;
    }
    void add(std::uint32_t number, rdma_link& link) {
        if ((count_ + 1) * 2 > entries_.size()) grow();
        put({number, &link});
        ++count_;
        last_ = none;
    }
    void remove(std::uint32_t number) noexcept {
        last_ = none;
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
    [[nodiscard]] rdma_link* look_up(std::uint32_t number) const noexcept {
        for (std::size_t i = place_of(number);; i = (i + 1) & mask()) {
            const entry& each = entries_[i];
            if (each.link == nullptr || each.number == number) return each.link;
        }
    }
    [[nodiscard]] std::size_t mask() const noexcept { return entries_.size() - 1; }
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
        for (const entry& each : old) {
            if (each.link != nullptr) put(each);
        }
    }

    std::vector<entry> entries_ = std::vector<entry>(16);
    std::size_t count_ = 0;
    /// No queue pair has this number: they have 24 bits.
    static constexpr entry none{0xffff'ffff, nullptr};
    entry last_ = none;  ///< what was looked up last; most often it is the next one too
};

}  // namespace accel::verbs
