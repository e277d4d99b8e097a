// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/graph.hpp>
#include <accel_transport/device/service.hpp>

/// The library's steps before and after recorded kernels. Not for applications.
namespace accel::device::detail {

/// Points of an iteration whose times are taken, in this order.
enum class iteration_point : std::uint32_t { taken, copied_in, worked, copied_out, answered };
inline constexpr std::uint32_t iteration_points = 5;

/// Durations are counted in classes: 64 in each octave, so a class says its durations to 1/64. Those below 128 ns have
/// one each.
inline constexpr std::uint32_t duration_class_bits = 6;
inline constexpr std::uint32_t duration_classes = 40U << duration_class_bits;

ACCEL_HOST_DEVICE inline std::uint32_t duration_class_of(std::uint64_t ns) noexcept {
    std::uint32_t octave = 0;
    while ((ns >> octave) >= (std::uint64_t{2} << duration_class_bits)) ++octave;
    const std::uint32_t found = (octave << duration_class_bits) + static_cast<std::uint32_t>(ns >> octave);
    return found < duration_classes ? found : duration_classes - 1;
}
/// The shortest duration of a class.
inline std::uint64_t shortest_of_class(std::uint32_t number) noexcept {
    constexpr std::uint32_t in_octave = std::uint32_t{1} << duration_class_bits;
    if (number < 2 * in_octave) return number;
    const std::uint32_t octave = (number >> duration_class_bits) - 1;
    return std::uint64_t{number - (octave << duration_class_bits)} << octave;
}

/// The state of one recording, in its GPU's memory.
struct graph_state {
    std::uint32_t count = 0;
    std::uint32_t stopped = 0;     ///< this iteration is the last
    std::uint64_t iterations = 0;  ///< that had requests
    std::uint64_t requests = 0;
    /// Over all iterations, from the first request's arrival to the last response posted.
    std::uint64_t total_ns = 0;
    std::uint64_t min_ns = 0;                     ///< 0: there was none
    std::int64_t reached[iteration_points] = {};  ///< in this iteration, by `clock_ns`
    /// Over all iterations, from the point before; the first one from the first request's arrival.
    std::uint64_t spent_ns[iteration_points] = {};
    std::uint32_t durations[duration_classes] = {};  ///< iterations of each class
};

/// An iteration as the library has it.
struct graph_memory {
    graph_state* state = nullptr;
    exchange_ref* exchanges = nullptr;
    graph_iteration iteration;        ///< of the same memory
    owned_sessions* owned = nullptr;  ///< the recording's sessions, where each has one owner
    std::uint32_t instances = 1;      ///< recordings among which the sessions are dealt then
};

/// By one thread, when the iteration has come so far.
ACCEL_HOST_DEVICE inline void mark_point(const graph_memory& memory, iteration_point point) noexcept {
    memory.state->reached[static_cast<std::uint32_t>(point)] = clock_ns();
}

/// The fault of a request; ok: it has none.
ACCEL_HOST_DEVICE inline status fitness_of(const graph_iteration& iteration, const exchange_ref& exchange) noexcept {
    if (iteration.input_bytes != 0 && exchange.request_bytes != iteration.input_bytes) return status::invalid_argument;
    return exchange.response_room < iteration.output_bytes ? status::message_too_large : status::ok;
}

/// False: the request has been refused, and is ended. `Service`: `service_ref`, or `owned_sessions`.
template <class Service>
ACCEL_HOST_DEVICE bool begin_request(Service& service, const graph_iteration& iteration, const exchange_ref& exchange,
                                     iteration_answer& answer) noexcept {
    const status fit = fitness_of(iteration, exchange);
    if (fit != status::ok)
        (void)fail(service, exchange, fit);
    else
        answer = {iteration.output_bytes, status::ok, 0, 0};
    return fit == status::ok;
}

/// The client's answer for the outcome that the recorded kernels give.
ACCEL_HOST_DEVICE inline answer answer_of(const exchange_ref& exchange, const iteration_answer& said) noexcept {
    if (said.reason != status::ok) return {failure_of(said.reason), said.code, 0};
    if (said.length > exchange.response_room) return {failure_of(status::message_too_large), 0, 0};
    return {status::ok, 0, said.length};
}

/// Waits for one request, then takes those that are ready. By one thread. Returns without requests only when
/// the service stops.
ACCEL_HOST_DEVICE inline void gather(const service_ref& service, const graph_memory& memory) noexcept {
    const graph_iteration& iteration = memory.iteration;
    std::uint32_t count = 0;
    bool stopped = false;
    for (std::uint32_t looks = 0; count < iteration.batch && (count == 0 || looks < 2 * iteration.batch); ++looks) {
        const status found = take_request(service, memory.exchanges[count]);
        if (found == status::ok) {
            if (begin_request(service, iteration, memory.exchanges[count], iteration.answers[count])) ++count;
        } else if (found == status::closed) {
            stopped = count == 0;
            break;
        } else if (count > 0) {
            break;
        }
        if (count == 0) looks = 0;
    }
    memory.state->count = count;
    memory.state->stopped = stopped ? 1 : 0;
    mark_point(memory, iteration_point::taken);
}

/// Thread `first` of `step` threads that share the copying of a request to where recorded kernels look.
ACCEL_HOST_DEVICE inline void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint64_t first,
                                         std::uint64_t step) noexcept {
    struct alignas(16) quad {
        std::uint64_t words[2];
    };
    const bool aligned =
        ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(quad)) == 0;
    const std::uint64_t quads = aligned ? bytes / sizeof(quad) : 0;
    for (std::uint64_t i = first; i < quads; i += step)
        reinterpret_cast<quad*>(to)[i] = reinterpret_cast<const quad*>(from)[i];
    for (std::uint64_t i = quads * sizeof(quad) + first; i < bytes; i += step) to[i] = from[i];
}

/// `count` requests to `input`.
ACCEL_HOST_DEVICE inline void copy_in(const graph_memory& memory, std::uint32_t count, std::uint64_t first,
                                      std::uint64_t step) noexcept {
    const graph_iteration& iteration = memory.iteration;
    for (std::uint32_t i = 0; i < count; ++i) {
        copy_bytes(iteration.input + i * iteration.input_bytes, memory.exchanges[i].request, iteration.input_bytes,
                   first, step);
    }
}

/// `count` responses from `output`, where there is one.
ACCEL_HOST_DEVICE inline void copy_out(const graph_memory& memory, std::uint32_t count, std::uint64_t first,
                                       std::uint64_t step) noexcept {
    const graph_iteration& iteration = memory.iteration;
    for (std::uint32_t i = 0; i < count; ++i) {
        const iteration_answer& answer = iteration.answers[i];
        if (answer.reason != status::ok || answer.length > iteration.output_bytes) continue;
        copy_bytes(memory.exchanges[i].response, iteration.output + i * iteration.output_bytes, answer.length, first,
                   step);
    }
}

/// Ends the requests first, first + step, …
ACCEL_HOST_DEVICE inline void end_requests(const service_ref& service, const graph_memory& memory, std::uint32_t first,
                                           std::uint32_t step) noexcept {
    for (std::uint32_t i = first; i < memory.state->count; i += step) {
        const exchange_ref& exchange = memory.exchanges[i];
        (void)answer_with(service, exchange, answer_of(exchange, memory.iteration.answers[i]));
    }
}

/// The iteration's last step, by one thread, when all points have been marked.
ACCEL_HOST_DEVICE inline void count_iteration(const graph_memory& memory) noexcept {
    graph_state& state = *memory.state;
    if (state.count == 0) return;
    std::uint64_t took = 0;
    std::int64_t before = memory.exchanges[0].arrival;
    for (std::uint32_t i = 0; i < iteration_points; ++i) {
        if (state.reached[i] < before) continue;  // clocks of processors that differ by a tick
        const auto spent = static_cast<std::uint64_t>(state.reached[i] - before);
        state.spent_ns[i] += spent;
        took += spent;
        before = state.reached[i];
    }
    ++state.iterations;
    state.requests += state.count;
    state.total_ns += took;
    if (state.min_ns == 0 || took < state.min_ns) state.min_ns = took;
    ++state.durations[duration_class_of(took)];
}

}  // namespace accel::device::detail
