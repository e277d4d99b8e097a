// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/coding/deflater.hpp"

#include <array>

namespace accel::examples::serving::coding {
namespace {

constexpr int window_bits = 15;
constexpr int gzip_header = 16;
constexpr int usual_memory = 8;

}  // namespace

deflater::deflater(content_coding to) {
    const int window = to == content_coding::gzip ? window_bits + gzip_header : window_bits;
    good_ = deflateInit2(&stream_, Z_BEST_SPEED, Z_DEFLATED, window, usual_memory, Z_DEFAULT_STRATEGY) == Z_OK;
}

deflater::~deflater() {
    if (good_) deflateEnd(&stream_);
}

bool deflater::run(std::span<const std::byte> input, int flush, std::string& to) {
    if (!good_) return false;
    std::array<char, 16384> piece;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    do {
        stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
        stream_.avail_out = piece.size();
        static_cast<void>(deflate(&stream_, flush));
        to.append(piece.data(), piece.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
    return true;
}

}  // namespace accel::examples::serving::coding
