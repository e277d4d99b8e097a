#pragma once

#include <accel_transport/device/service.hpp>

#include <cstdint>

/// Several requests at once, of one session or of many.
namespace accel::device {

/// Takes what is ready, oldest first, and at most `most`, without waiting: `out[0]` to `out[count - 1]` are
/// the caller's to end, each by itself. `again`: nothing is ready. `closed`: as for `take`, and only if
/// nothing was taken. Requests of others may be taken at the same time by other threads.
[[nodiscard]] ACCEL_HOST_DEVICE inline status take_batch(const service_ref& service, exchange_ref* out,
                                                         std::uint32_t most, std::uint32_t& count) noexcept {
    count = 0;
    while (count < most) {
        const status found = take(service, out[count]);
        if (found != status::ok) return count > 0 ? status::ok : found;
        ++count;
    }
    return status::ok;
}

/// The same, and waits for the first of them, at most `timeout_ns`: then `timed_out`. It never waits for a
/// second one.
[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_batch(const service_ref& service, exchange_ref* out,
                                                         std::uint32_t most, std::uint32_t& count,
                                                         std::int64_t timeout_ns) noexcept {
    for (std::int64_t start = 0;;) {
        const status found = take_batch(service, out, most, count);
        if (found != status::again) return found;
        const std::int64_t now = clock_ns();
        if (start == 0) start = now;
        if (now - start >= timeout_ns) return status::timed_out;
    }
}

}  // namespace accel::device
