// SPDX-License-Identifier: Apache-2.0
#include "perf/service.hpp"

#include "perf/command.hpp"
#include "perf/pattern.hpp"
#include "report/cpu_time.hpp"

#include <cstring>
#include <utility>

namespace accel::perf {
namespace {

void answer_report(exchange& request) {
    const server_report report{static_cast<std::uint64_t>(report::cpu_time().count())};
    if (request.response().size() < sizeof report) {
        request.fail(status::invalid_argument, 0, "a report needs response_bytes of at least 8");
        return;
    }
    std::memcpy(request.response().data(), &report, sizeof report);
    request.reply(sizeof report);
}

}  // namespace

void serve_request(exchange request) {
    const command wanted = unpack(request.trace_id());
    if (request.memory() != memory_kind::host() && (wanted.report_cpu || wanted.check)) {
        request.fail(status::unsupported, 0, "accel_perf does not read or write payloads in GPU memory");
        return;
    }
    if (wanted.report_cpu) return answer_report(request);
    if (wanted.response_bytes > request.response().size()) {
        request.fail(status::invalid_argument, 0, "the wanted response is longer than the client's response_bytes");
        return;
    }
    if (wanted.check) {
        if (!holds_pattern(request.request(), wanted.seed)) {
            request.fail(status::application_error, 1, "the request arrived with wrong bytes");
            return;
        }
        fill_pattern(request.response().first(wanted.response_bytes), response_seed(wanted.seed));
    }
    request.reply(wanted.response_bytes);
}

}  // namespace accel::perf
