// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "perf/measure.hpp"
#include "report/program.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace accel::perf {
namespace {

channel_options options_for(const settings& chosen, const load& what) {
    constexpr std::size_t room_for_a_report = 64;
    channel_options options;
    options.slots = what.depth;
    options.poll = chosen.poll;
    options.request_bytes = what.request_bytes;
    options.response_bytes = std::max(what.response_bytes, room_for_a_report);
    options.call_timeout = std::chrono::seconds{20};
    return options;
}

}  // namespace

result<std::vector<outcome>> measure(context& ctx, const std::string& uri, const settings& chosen) {
    std::vector<outcome> outcomes;
    for (const load& each : plan(chosen)) {
        auto seen = run_load(ctx, uri, options_for(chosen, each), each);
        if (!seen) return seen.error();
        outcomes.push_back({each, std::move(seen).value()});
    }
    return outcomes;
}

int client(const settings& chosen) {
    auto ctx = context::open();
    if (!ctx) return report::complain(program, ctx.error());
    auto outcomes = measure(*ctx, chosen.uris.front(), chosen);
    if (!outcomes) return report::complain(program, outcomes.error());
    return present(outcomes.value(), chosen) ? 0 : 1;
}

}  // namespace accel::perf
