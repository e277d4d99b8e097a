// SPDX-License-Identifier: Apache-2.0
#include "shim/foreign_plugin.hpp"

#include "softnic/softnic.h"

namespace accel::softnic {
namespace {

class foreign_engine final : public dma_engine {
  public:
    foreign_engine(const softnic_dma_ops& ops, void* self, std::uint64_t space)
        : ops_(ops), self_(self), space_(space) {}
    ~foreign_engine() override {
        if (ops_.release != nullptr) ops_.release(self_, space_);
    }
    foreign_engine(const foreign_engine&) = delete;
    foreign_engine& operator=(const foreign_engine&) = delete;

    bool read(void* to, std::uint64_t from, std::size_t size) override {
        return ops_.read(self_, space_, to, from, size) == 0;
    }
    bool read_part(void* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                   std::uint64_t following) override {
        if (ops_.read_part == nullptr) return read(to, from, size);
        return ops_.read_part(self_, space_, to, from, size, message, following) == 0;
    }
    bool write(std::uint64_t to, const void* from, std::size_t size) override {
        return ops_.write(self_, space_, to, from, size) == 0;
    }
    [[nodiscard]] bool defers() const override { return ops_.flush != nullptr; }
    bool flush() override { return ops_.flush == nullptr || ops_.flush(self_, space_) == 0; }
    write_start write_early(std::uint64_t to, const void* from, std::size_t size, write_order how,
                            std::uint64_t& mark) override {
        if (ops_.write_early == nullptr) return dma_engine::write_early(to, from, size, how, mark);
        const int begun = ops_.write_early(self_, space_, to, from, size, static_cast<int>(how), &mark);
        return begun == 0 ? write_start::later : begun > 0 ? write_start::begun : write_start::refused;
    }
    bool write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after,
                    std::uint64_t& mark) override {
        return ops_.write_last != nullptr && ops_.write_last(self_, space_, to, from, size, after, &mark) == 0;
    }
    write_state state_of(std::uint64_t mark) override {
        const int state = ops_.state_of == nullptr ? 1 : ops_.state_of(self_, space_, mark);
        return state == 0 ? write_state::under_way : state > 0 ? write_state::in_memory : write_state::lost;
    }
    bool keeps_order_with(const dma_engine& other) const override {
        const auto* same = dynamic_cast<const foreign_engine*>(&other);
        if (same == this) return true;
        return same != nullptr && same->self_ == self_ && ops_.keeps_order != nullptr &&
               ops_.keeps_order(self_, space_, same->space_) == 1;
    }
    bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) override {
        return ops_.fetch_add != nullptr && ops_.fetch_add(self_, space_, at, add, &previous) == 0;
    }
    bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t& previous) override {
        return ops_.compare_swap != nullptr && ops_.compare_swap(self_, space_, at, expected, desired, &previous) == 0;
    }

  private:
    const softnic_dma_ops& ops_;
    void* self_;
    std::uint64_t space_;
};

class foreign_plugin final : public dma_plugin {
  public:
    foreign_plugin(const softnic_dma_ops& ops, void* self) : ops_(ops), self_(self) {}

    dma_claim claim_range(std::uint64_t address, std::uint64_t size) override {
        if (ops_.claim_range == nullptr) return {};
        std::uint64_t space = 0;
        const int answer = ops_.claim_range(self_, address, size, &space);
        return made(answer, space);
    }
    dma_claim claim_dmabuf(const dmabuf_range& range) override {
        if (ops_.claim_dmabuf == nullptr) return {};
        std::uint64_t space = 0;
        const int answer =
            ops_.claim_dmabuf(self_, range.descriptor, range.offset, range.size_bytes, range.iova, &space);
        return made(answer, space);
    }

  private:
    [[nodiscard]] dma_claim made(int answer, std::uint64_t space) const {
        if (answer < 0) return {nullptr, -answer};
        if (answer == 0) return {};
        return {std::make_shared<foreign_engine>(ops_, self_, space), 0};
    }

    const softnic_dma_ops& ops_;
    void* self_;
};

}  // namespace

std::shared_ptr<dma_plugin> make_foreign_plugin(const softnic_dma_ops& ops, void* self) {
    return std::make_shared<foreign_plugin>(ops, self);
}

}  // namespace accel::softnic
