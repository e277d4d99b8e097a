// SPDX-License-Identifier: Apache-2.0
#include "report/program.hpp"
#include "side.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::bench {
namespace {

class channel_echo final : public echo {
  public:
    channel_echo(context ctx, channel to, std::size_t size_bytes, std::uint32_t in_flight)
        : context_(std::move(ctx)), to_(std::move(to)), size_bytes_(size_bytes), in_flight_(in_flight) {}

    bool round_trip() override {
        for (; started_ < in_flight_; ++started_)
            if (!start()) return false;
        if (to_.wait(done_, std::chrono::seconds{10}) != 1) return false;
        const bool answered = done_[0].status == status::ok && done_[0].response.size() == size_bytes_;
        done_[0].release();
        --started_;
        return answered && (in_flight_ == 1 || restart());
    }

  private:
    bool start() {
        const auto call = to_.begin();
        return call && to_.submit(call->id, size_bytes_) == status::ok;
    }
    bool restart() {
        ++started_;
        return start();
    }

    context context_;
    channel to_;
    std::size_t size_bytes_;
    std::uint32_t in_flight_;
    std::uint32_t started_ = 0;
    std::array<completion, 1> done_;
};

void answer(exchange request) {
    const std::size_t length = request.request().size();
    request.reply(length);
}

void copy_back(exchange request) {
    const std::span<const std::byte> bytes = request.request();
    std::memcpy(request.response().data(), bytes.data(), bytes.size());
    request.reply(bytes.size());
}

}  // namespace

side ours(const std::string& name, const std::string& scheme, const std::string& server_options,
          const std::string& client_options, std::uint32_t in_flight) {
    return {name,
            {"ours", scheme == "shm" ? fmt::format("shm://accel_bench-{}{}", ::getpid(), server_options)
                                     : fmt::format("{}://127.0.0.1:0{}", scheme, server_options)},
            [client_options, in_flight](const std::string& endpoint,
                                        std::size_t size_bytes) -> result<std::unique_ptr<echo>> {
                auto ctx = context::open();
                if (!ctx) return ctx.error();
                channel_options options;
                options.slots = in_flight;
                options.request_bytes = options.response_bytes = size_bytes;
                auto to = channel::connect(*ctx, endpoint + client_options, options);
                if (!to) return to.error();
                return std::unique_ptr<echo>{
                    std::make_unique<channel_echo>(std::move(*ctx), std::move(*to), size_bytes, in_flight)};
            }};
}

int serve_ours(const std::string& uri) {
    report::block_stop_signals();
    auto ctx = context::open();
    if (!ctx) return report::complain("accel_bench", ctx.error());
    auto running = server::listen(*ctx, {uri}, uri.starts_with("shm") ? copy_back : answer);
    if (!running) return report::complain("accel_bench", running.error());
    announce(running->endpoints().front());
    report::wait_for_stop_signal();
    return 0;
}

}  // namespace accel::bench
