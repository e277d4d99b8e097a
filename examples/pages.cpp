// SPDX-License-Identifier: Apache-2.0
/// Sends pages of a cache that lie anywhere in memory as one request, and has the answer put back page by page:
/// pages [URI]
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using namespace std::chrono_literals;

constexpr std::size_t page_bytes = 8 << 10;
constexpr std::size_t cached_pages = 256;
constexpr std::size_t sent_pages = 100;

/// The server sees one request, in one piece. It adds one to each byte.
void add_one(exchange request) {
    const auto from = request.request();
    const auto to = request.response();
    const std::size_t length = std::min(from.size(), to.size());
    std::ranges::transform(from.first(length), to.begin(),
                           [](std::byte each) { return std::byte(std::to_integer<int>(each) + 1); });
    request.reply(length);
}

/// Every page that a sequence of tokens uses, in its order.
std::vector<slice> pages_of(const region& cache, std::size_t first) {
    std::vector<slice> out;
    for (std::size_t i = 0; i < sent_pages; ++i)
        out.push_back(cache.part((first + i * 37) % cached_pages * page_bytes, page_bytes).value());
    return out;
}

bool all_are(const std::vector<slice>& pages, std::byte value) {
    return std::ranges::all_of(pages, [value](const slice& page) {
        return std::ranges::all_of(page.bytes(), [value](std::byte each) { return each == value; });
    });
}

int move_pages(context& ctx, channel& server) {
    const region cache = ctx.allocate(cached_pages * page_bytes).value();
    const region other = ctx.allocate(cached_pages * page_bytes).value();
    std::ranges::fill(cache.whole().bytes(), std::byte{41});
    const std::vector<slice> from = pages_of(cache, 5);
    const std::vector<slice> to = pages_of(other, 90);
    const auto call = server.begin();
    if (!call) return 1;
    // The lists are read now. The memory stays lent until the completion.
    if (server.submit(call->id, from, {.response_ranges = to}) != status::ok) return 1;
    completion c;
    if (server.wait({&c, 1}, 10s) == 0 || c.status != status::ok) return 1;
    std::printf("%zu bytes in %zu pages: %s\n", c.response.size(), to.size(),
                all_are(to, std::byte{42}) ? "good" : "bad");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    auto ctx = context::open().value();
    auto listening = server::listen(ctx, argc > 1 ? argv[1] : "local://pages", add_one).value();
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto connected = channel::connect(ctx, listening.endpoints().front() + keys);
    if (!connected) {
        std::fprintf(stderr, "%s\n", connected.error().message.c_str());
        return 1;
    }
    return move_pages(ctx, *connected);
}
