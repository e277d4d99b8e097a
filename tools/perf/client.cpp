// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "perf/measure.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace accel::perf {
namespace {

channel_options options_for(const settings& chosen, const std::vector<load>& loads) {
    channel_options options;
    options.slots = chosen.depth;
    options.poll = chosen.poll;
    options.request_bytes = 0;
    options.response_bytes = 64;  // room for a server_report
    options.call_timeout = std::chrono::seconds{20};
    for (const load& each : loads) {
        options.request_bytes = std::max(options.request_bytes, each.request_bytes);
        options.response_bytes = std::max(options.response_bytes, each.response_bytes);
    }
    return options;
}

}  // namespace

result<std::vector<outcome>> measure(context& ctx, const std::string& uri, const settings& chosen) {
    const std::vector<load> loads = plan(chosen);
    auto to = channel::connect(ctx, uri, options_for(chosen, loads));
    if (!to) return to.error();
    std::vector<outcome> outcomes;
    for (const load& each : loads) {
        if (each.request_bytes > to->max_request_bytes() || each.response_bytes > to->max_response_bytes() ||
            each.depth > to->slots()) {
            return error{status::message_too_large, 0,
                         fmt::format("the server grants {} slots, requests of {} and responses of {}: ask for less, "
                                     "or raise its max_slots, max_request_bytes and max_response_bytes",
                                     to->slots(), report::size_text(to->max_request_bytes()),
                                     report::size_text(to->max_response_bytes()))};
        }
        auto seen = run_load(*to, each);
        if (!seen) return seen.error();
        outcomes.push_back({std::string{to->scheme()}, each, std::move(seen).value()});
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
