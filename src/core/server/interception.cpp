// SPDX-License-Identifier: Apache-2.0
#include "core/server/interception.hpp"

#include "core/internals.hpp"
#include "core/server/worker.hpp"

#include <accel_transport/interceptor.hpp>

#include <utility>

/// What a server's interceptors see of its requests.
namespace accel::core {

handler intercepted(const handler& service, const server_options& options) {
    if (options.interceptors.empty()) return service;
    return [all = options.interceptors, service](exchange request) {
        exchange_state& state = *internals::state_of(request);
        state.interceptors = 0;
        state.ends.fetch_or(exchange_end::intercepted, std::memory_order_relaxed);
        for (const auto& each : all) {
            ++state.interceptors;
            const auto good = each->before(request);
            if (good) continue;
            const error& why = good.error();
            (void)request.fail(why.code, static_cast<std::uint32_t>(why.native), why.message);
            return;
        }
        service(std::move(request));
    };
}

/// An answer that the worker's end has overtaken.
void worker::end_unsent(exchange_state& answered) noexcept {
    end_lease(answered);
    const std::uint8_t ends = answered.ends.exchange(0, std::memory_order_relaxed);
    if ((ends & exchange_end::intercepted) == 0) return;
    now_ = clock_.now();
    answered.answer.fail(status::peer_lost);
    answered.payload = {};
    tell_interceptors(answered, (ends & exchange_end::targeted) != 0);
}

/// At `now_`.
[[gnu::noinline]] void worker::tell_interceptors(const exchange_state& answered, bool targeted) const noexcept {
    const auto recorded = [&](stage what) { return answered.answer.stages[static_cast<std::size_t>(what)]; };
    const session& from = *answered.owner;
    served_call call;
    call.session_id = from.id();
    call.id = {answered.slot, answered.generation};
    call.trace_id = answered.trace_id;
    call.scheme = from.scheme();
    call.peer = from.client().name;
    if (targeted) call.target = answered.target->name;
    call.status = answered.answer.code;
    call.code = answered.answer.application_code;
    call.request_bytes = answered.request.size();
    call.response_bytes = answered.payload.size();
    call.timeline.queue = answered.handler_start - answered.arrival;
    call.timeline.copy = recorded(stage::copy);
    call.timeline.preprocessing = recorded(stage::preprocessing);
    call.timeline.inference = recorded(stage::inference);
    call.timeline.server = now_ - answered.arrival;
    for (std::size_t i = answered.interceptors; i > 0; --i) options_.interceptors[i - 1]->after(call);
}

}  // namespace accel::core
