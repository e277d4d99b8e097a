// SPDX-License-Identifier: Apache-2.0
// A compressed message: which coding, the length of its pieces and of what it may become, and its bytes.
#include "fuzz_target.hpp"
#include "serving/doors/coding/deflater.hpp"
#include "serving/doors/coding/inflater.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace accel::examples::serving::coding;

std::vector<std::span<const std::byte>> pieces_of(std::span<const std::byte> message, std::size_t length) {
    std::vector<std::span<const std::byte>> out;
    for (; !message.empty(); message = message.subspan(out.back().size()))
        out.push_back(message.first(std::min(length, message.size())));
    return out;
}

/// Room by room, as a connection reads it.
std::string inflated_in_rooms(content_coding from, std::span<const std::byte> input, std::size_t room_bytes) {
    inflater reader{from};
    std::string out;
    std::vector<std::byte> place(room_bytes);
    for (;;) {
        std::span<std::byte> room{place};
        const std::size_t before = input.size();
        const auto now = reader.step(input, room);
        out.append(reinterpret_cast<const char*>(place.data()), place.size() - room.size());
        const bool moved = input.size() < before || room.size() < place.size();
        if (now != inflater::progress::goes_on || !moved) return out;
    }
}

/// Of a fuzz input, which needs far less.
memory_share enough_memory() {
    return memory_share{std::make_shared<accel::examples::serving::doors::memory_budget>(std::size_t{1} << 20)};
}

void check_round_trip(content_coding how, std::span<const std::byte> plain, std::size_t length) {
    deflater packer{how};
    std::string packed;
    bool good = true;
    for (const auto piece : pieces_of(plain, length)) good = good && packer.add(piece, packed);
    accel::tests::require(good && packer.finish(packed), "there is memory");
    auto memory = enough_memory();
    const auto back = inflate_all(how, pieces_of(std::as_bytes(std::span{packed}), length), plain.size(), memory);
    const std::string_view wanted{reinterpret_cast<const char*>(plain.data()), plain.size()};
    accel::tests::require(back && back.value() == wanted, "what was compressed comes back");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    const content_coding how = input.byte() % 2 == 0 ? content_coding::gzip : content_coding::deflate;
    const std::size_t length = input.byte() + 1U;
    const std::size_t limit = input.byte() * std::size_t{64};
    const auto message = std::as_bytes(input.rest());
    auto memory = enough_memory();
    const auto read = inflate_all(how, pieces_of(message, length), limit, memory);
    if (read) {
        accel::tests::require(read.value().size() <= limit, "it is not longer than the limit");
        accel::tests::require(read.value() == inflated_in_rooms(how, message, length), "pieces change nothing");
    }
    check_round_trip(how, message.first(std::min<std::size_t>(message.size(), 512)), length);
    static_cast<void>(accepted_coding({reinterpret_cast<const char*>(message.data()), message.size()}));
    return 0;
}
