#include "core/slot_memory.hpp"

#include <cerrno>

#include <fmt/format.h>
#include <sys/mman.h>

namespace accel::core {
namespace {

constexpr std::size_t cache_line = 64;

std::size_t stride_for(std::size_t capacity) noexcept {
    return (extension_room + header_bytes + capacity + cache_line - 1) / cache_line * cache_line;
}

}  // namespace

std::size_t slot_memory::size_bytes(std::uint32_t count, std::size_t capacity) noexcept {
    return stride_for(capacity) * count;
}

result<std::shared_ptr<slot_memory>> slot_memory::create(std::uint32_t count, std::size_t capacity,
                                                         memory_kind kind) {
    if (kind != memory_kind::host()) {
        return error{status::unsupported, 0, "slots in GPU memory need a build with CUDA; use memory=host"};
    }
    if (count == 0 || count > max_slots || capacity > max_payload_bytes) {
        return error{
            status::invalid_argument, 0,
            fmt::format("slots have to be 1 to {} of at most {} bytes", max_slots, max_payload_bytes)};
    }
    const std::size_t size = size_bytes(count, capacity);
    void* base =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return error{
            status::out_of_memory, errno,
            fmt::format("cannot map {} bytes for {} slots; ask for fewer or smaller ones", size, count)};
    }
    return std::shared_ptr<slot_memory>(
        new slot_memory(static_cast<std::byte*>(base), count, capacity, stride_for(capacity)));
}

slot_memory::~slot_memory() {
    ::munmap(base_, size_bytes());
}

}  // namespace accel::core
