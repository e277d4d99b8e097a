// SPDX-License-Identifier: Apache-2.0
#include "dma/engine.hpp"

#include "dma/guarded.hpp"

#include <cerrno>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

class host_engine final : public dma_engine {
  public:
    const std::byte* host_view(std::uint64_t at, std::size_t) override {
        return static_cast<const std::byte*>(guarded::pointer(at));
    }
    bool read(void* to, std::uint64_t from, std::size_t size_bytes) override {
        return guarded::copy(to, guarded::pointer(from), size_bytes);
    }
    bool write(std::uint64_t to, const void* from, std::size_t size_bytes) override {
        return guarded::copy(guarded::pointer(to), from, size_bytes);
    }
    bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) override {
        return guarded::fetch_add64(guarded::pointer(at), add, previous);
    }
    bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t& previous) override {
        return guarded::compare_swap64(guarded::pointer(at), expected, desired, previous);
    }
};

/// Owns the mapping; forwards to the host engine at mapping + offset.
class mapped_engine final : public dma_engine {
  public:
    mapped_engine(void* mapping, std::size_t size_bytes) : mapping_(mapping), size_bytes_(size_bytes) {}
    ~mapped_engine() override { ::munmap(mapping_, size_bytes_); }
    mapped_engine(const mapped_engine&) = delete;
    mapped_engine& operator=(const mapped_engine&) = delete;

    bool read(void* to, std::uint64_t from, std::size_t size_bytes) override {
        return contains(from, size_bytes) && host_.read(to, base() + from, size_bytes);
    }
    bool write(std::uint64_t to, const void* from, std::size_t size_bytes) override {
        return contains(to, size_bytes) && host_.write(base() + to, from, size_bytes);
    }
    bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) override {
        return contains(at, 8) && host_.fetch_add(base() + at, add, previous);
    }
    bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t& previous) override {
        return contains(at, 8) && host_.compare_swap(base() + at, expected, desired, previous);
    }

  private:
    [[nodiscard]] bool contains(std::uint64_t at, std::size_t size_bytes) const {
        return at <= size_bytes_ && size_bytes <= size_bytes_ - at;
    }
    [[nodiscard]] std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(mapping_); }

    void* mapping_;
    std::size_t size_bytes_;
    host_engine host_;
};

}  // namespace

std::shared_ptr<dma_engine> host_dma() {
    static auto& engine = *new std::shared_ptr<dma_engine>(std::make_shared<host_engine>());
    return engine;
}

std::shared_ptr<dma_engine> map_dmabuf(int descriptor, std::uint64_t offset, std::uint64_t size_bytes, bool writable) {
    const std::uint64_t end = offset + size_bytes;
    struct stat status {};
    if (end < offset || end == 0 || ::fstat(descriptor, &status) != 0) return nullptr;
    // A dma-buf reports its size; mapping past the end would only fault later, as a protection error.
    if (status.st_size > 0 && end > static_cast<std::uint64_t>(status.st_size)) return nullptr;
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* mapping = ::mmap(nullptr, end, protection, MAP_SHARED, descriptor, 0);
    if (mapping == MAP_FAILED) return nullptr;
    return std::make_shared<mapped_engine>(mapping, end);
}

dma_claim dma_registry::for_range(std::uint64_t address, std::uint64_t size_bytes) const {
    for (const auto& plugin : plugins_)
        if (auto claim = plugin->claim_range(address, size_bytes); claim.made()) return claim;
    return {host_dma(), 0};
}

dma_claim dma_registry::for_dmabuf(const dmabuf_range& range, bool writable) const {
    for (const auto& plugin : plugins_)
        if (auto claim = plugin->claim_dmabuf(range); claim.made()) return claim;
    auto mapped = map_dmabuf(range.descriptor, range.offset, range.size_bytes, writable);
    if (mapped == nullptr) return {nullptr, EOPNOTSUPP};
    return {std::move(mapped), 0};
}

}  // namespace accel::softnic
