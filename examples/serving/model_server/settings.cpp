// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/settings.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace accel::examples::serving {

std::optional<stream_choice> parse_streams(std::string_view text) {
    if (text == "client") return stream_choice{0, true};
    std::uint32_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc{} || end != text.data() + text.size() || number < 1 || number > 256) return std::nullopt;
    return stream_choice{number, false};
}

std::string contradiction_in(const settings& chosen) {
    if (chosen.on == execution::host && chosen.streams.per_client)
        return "--streams client needs --on gpu: on the host, give a number of threads";
    if (chosen.on != execution::host && chosen.max_batch > 1)
        return "--max-batch needs --on host: on a GPU each request has a stream of its own";
    if (chosen.on == execution::gpu_resident && (chosen.models.size() != 1 || chosen.uris.size() != 1))
        return "--on gpu-resident serves one model at one URI: start a separate server for each";
    if (chosen.on == execution::gpu_resident && chosen.streams.per_client)
        return "--streams client needs --on gpu: a recorded graph serves all clients, so give a number of recordings";
    if (chosen.on == execution::gpu_resident && (chosen.control || chosen.warm_up > 0))
        return "--control and --warm-up need --on host or gpu: a recorded graph runs before it is served";
    if (chosen.on != execution::gpu_resident && chosen.resident_raw)
        return "--resident-raw needs --on gpu-resident: other servers accept images as well as tensors";
    if (chosen.contexts > 1 && chosen.control) return "--control needs a single process: leave out --contexts";
    return {};
}

result<std::vector<model_spec>> specs_of(const settings& chosen) {
    std::vector<model_spec> out;
    for (const std::string& text : chosen.models) {
        auto spec = parse_model_spec(text);
        if (!spec) return spec.error();
        if (std::ranges::any_of(out, [&](const model_spec& other) { return other.name == spec->name; }))
            return error{status::invalid_argument, 0, fmt::format("'{}' is given twice: remove one", spec->name)};
        out.push_back(std::move(*spec));
    }
    return out;
}

model_place place_of(const settings& chosen) {
    model_place out;
    if (chosen.on != execution::host) out.gpu = chosen.gpu;
    out.graphs = chosen.on == execution::gpu && chosen.graphs;  // a resident service records by itself
    out.synthetic = chosen.synthetic;
    return out;
}

serving_options serving_of(const settings& chosen) {
    serving_options out;
    out.threads = chosen.on == execution::host ? chosen.streams.number : 0;
    out.max_batch = chosen.max_batch;
    out.max_wait = chosen.max_batch > 1 ? chosen.max_wait : std::chrono::nanoseconds{};
    return out;
}

/// A pool has a number of streams. So many clients have one each; further clients share them.
constexpr std::uint32_t streams_of_clients = 16;

server_options options_of(const settings& chosen) {
    server_options out;
    if (chosen.on == execution::host) return out;
    out.memory = memory_kind::cuda(chosen.gpu);
    out.stream_per_session = chosen.streams.per_client;
    if (chosen.streams.per_client) out.streams = streams_of_clients;
    if (chosen.streams.number > 0) out.streams = chosen.streams.number;
    out.priority_streams = chosen.priority_streams;
    return out;
}

}  // namespace accel::examples::serving
