// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/coding/inflater.hpp"

#include <algorithm>
#include <limits>

namespace accel::examples::serving::coding {
namespace {

constexpr int largest_window = 15;
constexpr int of_gzip = 16;
constexpr std::size_t first_room = std::size_t{16} << 10;

uInt fitting(std::size_t size) {
    return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
}

error broken_body(content_coding what, const char* how) {
    return {.code = status::invalid_argument,
            .native = 0,
            .message = "the compressed data is " + std::string{how} + ", or not " + std::string{name_of(what)}};
}

/// The memory before it is given back when its bytes are in the new one. False: there is none.
bool enlarge(std::string& text, std::size_t limit, memory_share& memory) {
    const std::size_t before = text.size();
    // One byte more than the limit tells that it is too long.
    const std::size_t wanted = std::min(limit + 1, std::max(first_room, before * 2));
    if (!memory.grow(wanted)) return false;
    text.resize(wanted);
    memory.shrink(before);
    return true;
}

}  // namespace

inflater::inflater(content_coding from) {
    const int window = from == content_coding::gzip ? largest_window + of_gzip : largest_window;
    good_ = inflateInit2(&stream_, window) == Z_OK;
}

inflater::~inflater() {
    if (good_) inflateEnd(&stream_);
}

inflater::progress inflater::step(std::span<const std::byte>& input, std::span<std::byte>& output) {
    if (!good_) return progress::broken;
    const uInt given = fitting(input.size());
    const uInt room = fitting(output.size());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = room;
    const int said = inflate(&stream_, Z_NO_FLUSH);
    input = input.subspan(given - stream_.avail_in);
    output = output.subspan(room - stream_.avail_out);
    if (said == Z_STREAM_END) return progress::whole;
    return said == Z_OK || said == Z_BUF_ERROR ? progress::goes_on : progress::broken;
}

result<std::string> inflate_all(content_coding from, std::span<const std::span<const std::byte>> pieces,
                                std::size_t limit, memory_share& memory) {
    inflater reader{from};
    std::string out;
    std::size_t used = 0;
    auto now = inflater::progress::goes_on;
    for (std::span<const std::byte> rest : pieces) {
        bool full = false;
        while (now == inflater::progress::goes_on && (!rest.empty() || full)) {
            if (used > limit) break;
            if (used == out.size() && !enlarge(out, limit, memory))
                return error{.code = status::overloaded,
                             .native = 0,
                             .message = "not enough memory to decompress it now: try again"};
            std::span<std::byte> room = std::as_writable_bytes(std::span{out}).subspan(used);
            now = reader.step(rest, room);
            used = out.size() - room.size();
            full = room.empty();
        }
        if (used > limit) return error{.code = status::message_too_large, .native = 0, .message = "it is too long"};
        if (now == inflater::progress::broken) return broken_body(from, "broken");
        if (!rest.empty()) return broken_body(from, "followed by other bytes");
    }
    if (now != inflater::progress::whole) return broken_body(from, "cut");
    out.resize(used);
    return out;
}

}  // namespace accel::examples::serving::coding
