// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/protocol.hpp"
#include "core/tensor_description.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

/// Messages with descriptions of tensors.
namespace accel::core::described {

/// A slot with its room for extensions, and a payload behind the header.
struct slot {
    static constexpr std::size_t payload_bytes = 4096;
    slot() {
        auto& made = *new (header()) slot_header;
        made.generation = generation;
        made.length = payload_bytes;
    }
    std::byte* header() { return memory + extension_room; }
    std::span<std::byte> payload() { return {header() + header_bytes, payload_bytes}; }
    void extend(std::size_t count) {
        reinterpret_cast<slot_header*>(header())->extension_bytes = static_cast<std::uint16_t>(count);
    }
    status describe(std::span<const tensor> list, bool on_host = true, std::size_t others = 0) {
        std::uint16_t count = 0;
        const status done = describe_message({header(), payload(), on_host, others}, list, count);
        extend(count);
        return done;
    }
    [[nodiscard]] std::uint16_t extension_bytes() { return read_header(header()).extension_bytes; }
    /// As the other end reads it.
    status read(std::vector<tensor>& out, bool on_host = true, std::uint32_t of = generation) {
        out.resize(max_tensors);
        const auto done = read_description(header(), of, payload(), on_host, out);
        out.resize(done ? done->size() : 0);
        return done.code();
    }
    static constexpr std::uint32_t generation = 5;
    alignas(64) std::byte memory[extension_room + header_bytes + payload_bytes] = {};
};

inline std::vector<tensor> some(std::uint32_t count, std::uint32_t rank, std::uint64_t offset = 0) {
    std::vector<tensor> out(count);
    for (tensor& each : out) {
        each = {{}, rank, offset, {}};
        for (std::uint32_t d = 0; d < rank; ++d) each.shape[d] = d + 1;
        if (rank > 5) each.shape[rank - 1] = 1;
        if (rank > 4) each.shape[4] = 1;
    }
    return out;
}

}  // namespace accel::core::described
