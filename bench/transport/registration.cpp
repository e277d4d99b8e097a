// SPDX-License-Identifier: Apache-2.0
#include "registration.hpp"

#include "bare_verbs_domain.hpp"
#include "report/percentiles.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace accel::bench {
namespace {

using clock = std::chrono::steady_clock;
constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::array<std::size_t, 4> sizes{64 * KiB, MiB, 16 * MiB, 64 * MiB};
constexpr std::size_t sent_bytes = 64;
constexpr std::size_t small_regions = 64;
constexpr std::size_t small_bytes = 16 * KiB;

template <class Action>
double microseconds_of(Action&& action) {
    const auto start = clock::now();
    action();
    return report::microseconds(clock::now() - start);
}

/// A channel to a server in this process, both driven by this thread.
class lender {
  public:
    [[nodiscard]] static result<lender> open() {
        auto ctx = context::open();
        if (!ctx) return ctx.error();
        server_options served;
        served.workers = 0;
        auto service = server::listen(
            *ctx, {"rdma://127.0.0.1:0?insecure=true"}, [](exchange request) { request.reply(0); }, served);
        if (!service) return service.error();
        auto to = channel::connect(*ctx, service->endpoints().front() + "?insecure=true");
        if (!to) return to.error();
        return lender{std::move(*ctx), std::move(*service), std::move(*to)};
    }

    [[nodiscard]] context& memory() noexcept { return context_; }
    /// Lends a few bytes of each; how long the submissions took. Nothing where a call failed.
    [[nodiscard]] std::optional<double> lend(std::span<const slice> all) {
        double taken = 0;
        for (const slice& each : all) {
            const auto call = to_.begin();
            if (!call) return std::nullopt;
            status sent = status::ok;
            taken += microseconds_of([&] { sent = to_.submit(call->id, each); });
            if (sent != status::ok || !finish()) return std::nullopt;
        }
        return taken;
    }

  private:
    lender(context ctx, server service, channel to)
        : context_(std::move(ctx)), service_(std::move(service)), to_(std::move(to)) {}
    bool finish() {
        std::array<completion, 1> done;
        const auto until = clock::now() + std::chrono::seconds{10};
        while (to_.poll(done) == 0) {
            service_.poll();
            if (clock::now() > until) return false;
        }
        return done[0].status == status::ok;
    }

    context context_;
    server service_;
    channel to_;
};

error failed() {
    return {status::system_error, errno, "memory could not be registered or lent"};
}

result<registration_cost> measure_size(lender& ours, const bare_domain& bare, std::size_t size, std::size_t rounds) {
    std::vector<double> first, further, plain;
    for (std::size_t round = 0; round < rounds; ++round) {
        auto memory = ours.memory().allocate(size);
        if (!memory) return memory.error();
        std::memset(memory->data(), 1, size);
        const std::array<std::span<std::byte>, 1> all{memory->whole().bytes()};
        const auto registered = bare.register_all(all);
        const auto lent = ours.lend(std::array{*memory->part(0, sent_bytes)});
        const auto again = ours.lend(std::array{*memory->part(size / 2, sent_bytes)});
        if (!registered || !lent || !again) return failed();
        plain.push_back(*registered);
        first.push_back(*lent);
        further.push_back(*again);
    }
    return registration_cost{size, report::median(first), report::median(further), report::median(plain)};
}

struct neighbours {
    std::vector<region> regions;
    std::vector<slice> slices;
    std::vector<std::span<std::byte>> ranges;
};

result<neighbours> divide(context& ctx, const region& whole) {
    neighbours made;
    for (std::size_t i = 0; i < small_regions; ++i) {
        auto each = ctx.register_memory(whole.data() + i * small_bytes, small_bytes);
        if (!each) return each.error();
        made.slices.push_back(*each->part(0, sent_bytes));
        made.ranges.push_back(each->whole().bytes());
        made.regions.push_back(std::move(*each));
    }
    return made;
}

result<small_regions_cost> measure_small(lender& ours, const bare_domain& bare, std::size_t rounds) {
    std::vector<double> alone, covered, plain;
    for (std::size_t round = 0; round < 2 * rounds; ++round) {
        const bool lend_whole_first = round % 2 == 1;
        auto whole = ours.memory().allocate(small_regions * small_bytes);
        if (!whole) return whole.error();
        std::memset(whole->data(), 1, whole->size());
        auto parts = divide(ours.memory(), *whole);
        if (!parts) return parts.error();
        const auto registered = bare.register_all(parts->ranges);
        if (lend_whole_first && !ours.lend(std::array{*whole->part(0, sent_bytes)})) return failed();
        const auto lent = ours.lend(parts->slices);
        if (!registered || !lent) return failed();
        plain.push_back(*registered);
        (lend_whole_first ? covered : alone).push_back(*lent);
    }
    return small_regions_cost{small_regions, small_bytes, report::median(alone), report::median(covered),
                              report::median(plain)};
}

}  // namespace

result<registration_report> measure_registration(std::size_t rounds) {
    auto ours = lender::open();
    if (!ours) return ours.error();
    const bare_domain bare;
    registration_report report;
    for (const std::size_t size : sizes) {
        auto cost = measure_size(*ours, bare, size, rounds);
        if (!cost) return cost.error();
        report.sizes.push_back(*cost);
    }
    auto small = measure_small(*ours, bare, rounds);
    if (!small) return small.error();
    report.small = *small;
    return report;
}

}  // namespace accel::bench
