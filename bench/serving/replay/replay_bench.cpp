// SPDX-License-Identifier: Apache-2.0
// What the library adds to a model on a GPU: a recorded model that is called in a loop, beside the same served over
// local://, by one caller and by many.
#include "report/cpu_time.hpp"
#include "report/percentiles.hpp"
#include "report/program.hpp"
#include "report/table.hpp"
#include "serving/model_server/model_registry.hpp"
#include "serving/model_server/request_check.hpp"
#include "serving/model_server/settings.hpp"
#include "serving/models/gpu_models.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel;
using namespace accel::examples::serving;
using std::chrono::steady_clock;

constexpr const char* program = "replay_bench";
constexpr int warm_calls = 20;

struct choice {
    std::vector<std::string> models{"digits", "resnet50=synthetic"};
    std::vector<std::string> graphs{"on", "off"};
    int calls = 1000;
    int callers = 16;
    std::string server_query;  ///< of the URI: workers=4, say
    std::string client_query;
    std::string json;
};

template <class T>
T need(result<T> got) {
    if (!got) throw std::runtime_error(got.error().message);
    return std::move(got).value();
}
void need(result<void> got) {
    if (!got) throw std::runtime_error(got.error().message);
}
void need(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}
void need(status code) {
    if (code != status::ok) throw std::runtime_error(std::string{to_string(code)});
}

/// Of calls in microseconds.
struct spread {
    double mean = 0;
    double cov = 0;  ///< standard deviation ÷ mean
};
spread spread_of(const std::vector<double>& calls) {
    spread out;
    for (const double each : calls) out.mean += each / static_cast<double>(calls.size());
    double squares = 0;
    for (const double each : calls) squares += (each - out.mean) * (each - out.mean);
    out.cov = std::sqrt(squares / static_cast<double>(calls.size())) / out.mean;
    return out;
}

/// Does one call after another; `call` is one.
std::vector<double> timed(int calls, const std::function<void()>& call) {
    for (int i = 0; i < warm_calls; ++i) call();
    std::vector<double> out;
    for (int i = 0; i < calls; ++i) {
        const auto begin = steady_clock::now();
        call();
        out.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count());
    }
    return out;
}

struct rate {
    double per_second = 0;
    double cpu_us = 0;  ///< of this process, for each call
};

/// Of so many callers at once, each with a call of its own.
rate rate_of(int callers, int calls, const std::function<std::function<void()>()>& make_call) {
    std::vector<std::function<void()>> own;
    for (int i = 0; i < callers; ++i) own.push_back(make_call());
    for (auto& call : own)
        for (int i = 0; i < warm_calls; ++i) call();
    std::vector<std::thread> threads;
    const auto cpu = report::cpu_time();
    const auto begin = steady_clock::now();
    for (auto& call : own)
        threads.emplace_back([&call, calls] {
            for (int i = 0; i < calls; ++i) call();
        });
    for (std::thread& each : threads) each.join();
    const double all = static_cast<double>(callers) * calls;
    return {all / std::chrono::duration<double>(steady_clock::now() - begin).count(),
            report::microseconds(report::cpu_time() - cpu) / all};
}

/// A stream, and memory for one inference on the GPU and on the host.
struct bare_place {
    bare_place(std::size_t in, std::size_t out) {
        need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        need(cudaMalloc(&memory, in + out));
        need(cudaMallocHost(&host, in + out));
    }
    bare_place(const bare_place&) = delete;
    bare_place& operator=(const bare_place&) = delete;
    ~bare_place() {
        (void)cudaFreeHost(host);
        (void)cudaFree(memory);
        (void)cudaStreamDestroy(stream);
    }
    cudaStream_t stream = nullptr;
    std::byte* memory = nullptr;
    std::byte* host = nullptr;
};

/// A call of the model alone, from pinned memory of the host and back.
std::function<void()> bare_call(model& of) {
    const std::size_t in = (payload_bytes(of.shapes().inputs) + 255) / 256 * 256;
    const std::size_t out = payload_bytes(of.shapes().outputs);
    const auto place = std::make_shared<bare_place>(in, out);
    const auto room = of.input_room(place->stream);
    const std::span<std::byte> input = room.empty() ? std::span{place->memory, in} : room;
    const model_job job{input, {place->memory + in, out}};
    return [&of, place, input, job, out] {
        need(cudaMemcpyAsync(input.data(), place->host, input.size(), cudaMemcpyHostToDevice, place->stream));
        need(of.infer(place->stream, {&job, 1}));
        need(cudaMemcpyAsync(place->host, job.output.data(), out, cudaMemcpyDeviceToHost, place->stream));
        need(cudaStreamSynchronize(place->stream));
    };
}

/// Means of stages in microseconds.
struct stages {
    double request = 0, queue = 0, copy = 0, inference = 0, response = 0, server = 0;
    void add(const timeline& of, int calls) {
        const auto mean = [&](std::chrono::nanoseconds time) { return report::microseconds(time) / calls; };
        request += mean(of.request);
        queue += mean(of.queue);
        copy += mean(of.copy);
        inference += mean(of.inference);
        response += mean(of.response);
        server += mean(of.server);
    }
};

/// A call through a channel of its own, of so many of which `sum` gets the means.
std::function<void()> served_call(context& ctx, const std::string& uri, const model_shapes& shapes, stages* sum,
                                  int calls) {
    channel_options options;
    options.slots = 1;
    options.request_bytes = payload_bytes(shapes.inputs);
    options.response_bytes = payload_bytes(shapes.outputs);
    auto to = std::make_shared<channel>(need(channel::connect(ctx, uri, options)));
    const target which = need(to->resolve(shapes.name));
    auto tensors = shapes.inputs;
    place_from_zero(tensors);
    const std::size_t end = payload_bytes(tensors);
    return [to, which, tensors, end, sum, calls, count = 0]() mutable {
        const auto call = to->begin();
        need(call.code());
        submit_options how;
        how.target = which;
        how.tensors = tensors;
        need(to->submit(call->id, end, how));
        completion done;
        if (to->wait({&done, 1}, std::chrono::seconds{60}) != 1) throw std::runtime_error("a call got no answer");
        need(done.status);
        if (sum != nullptr && ++count > warm_calls) sum->add(done.timeline, calls);
    };
}

nlohmann::json measure(context& ctx, const choice& chosen, const std::string& spec, const std::string& graphs) {
    settings served;
    served.models = {spec};
    served.on = execution::gpu;
    served.graphs = graphs == "on";
    served.streams.per_client = true;
    const auto specs = need(specs_of(served));
    const auto alone = need(open_model(specs[0], place_of(served)));
    const spread bare = spread_of(timed(chosen.calls, bare_call(*alone)));
    const rate bare_rate = rate_of(chosen.callers, chosen.calls / 4, [&] { return bare_call(*alone); });

    model_registry registry(ctx, place_of(served), serving_of(served));
    need(registry.load(specs[0]));
    const auto uri = [](const std::string& query) {
        return "local://replay-bench" + (query.empty() ? query : "?" + query);
    };
    const server at = need(server::listen(ctx, {uri(chosen.server_query)}, registry.services(), options_of(served)));
    stages means;
    const auto call = [&](stages* sum) {
        return served_call(ctx, uri(chosen.client_query), alone->shapes(), sum, chosen.calls);
    };
    const spread local = spread_of(timed(chosen.calls, call(&means)));
    const rate local_rate = rate_of(chosen.callers, chosen.calls / 4, [&] { return call(nullptr); });
    return {{"model", spec},
            {"graphs", graphs},
            {"calls", chosen.calls},
            {"callers", chosen.callers},
            {"bare_us", bare.mean},
            {"bare_cov", bare.cov},
            {"local_us", local.mean},
            {"local_cov", local.cov},
            {"request_us", means.request},
            {"queue_us", means.queue},
            {"copy_us", means.copy},
            {"inference_us", means.inference},
            {"response_us", means.response},
            {"server_us", means.server},
            {"bare_per_second", bare_rate.per_second},
            {"bare_cpu_us", bare_rate.cpu_us},
            {"local_per_second", local_rate.per_second},
            {"local_cpu_us", local_rate.cpu_us}};
}

int run(const choice& chosen) {
    use_all_gpu_queues();
    context ctx = need(context::open());
    report::table table({{"model", report::table::align::left},
                         {"graphs", report::table::align::left},
                         {"bare us"},
                         {"CoV"},
                         {"local us"},
                         {"CoV"},
                         {"ratio"},
                         {"request"},
                         {"queue"},
                         {"copy"},
                         {"inference"},
                         {"response"},
                         {"server"},
                         {fmt::format("bare/s, {}", chosen.callers)},
                         {"CPU us"},
                         {"local/s"},
                         {"CPU us"},
                         {"ratio"}});
    nlohmann::json rows = nlohmann::json::array();
    for (const std::string& model : chosen.models)
        for (const std::string& graphs : chosen.graphs) {
            const auto row = measure(ctx, chosen, model, graphs);
            const auto at = [&](const char* key) { return row.at(key).get<double>(); };
            const auto count = [&](const char* key) { return fmt::format("{:.0f}", at(key)); };
            const auto us = [&](const char* key) { return fmt::format("{:.1f}", at(key)); };
            table.add_row(
                {model.substr(0, model.find('=')), graphs, us("bare_us"), fmt::format("{:.3f}", at("bare_cov")),
                 us("local_us"), fmt::format("{:.3f}", at("local_cov")),
                 fmt::format("{:.3f}", at("local_us") / at("bare_us")), us("request_us"), us("queue_us"), us("copy_us"),
                 us("inference_us"), us("response_us"), us("server_us"), count("bare_per_second"), count("bare_cpu_us"),
                 count("local_per_second"), count("local_cpu_us"),
                 fmt::format("{:.3f}", at("local_per_second") / at("bare_per_second"))});
            rows.push_back(row);
        }
    std::cout << table.text()
              << "Means in microseconds. bare: the model alone, from pinned memory of the host and back. local: "
                 "served, with its stages. CPU: of a call.\n";
    return chosen.json.empty() || report::write_json(chosen.json, rows) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"What the library adds to a model on a GPU that is recorded, or launched"};
    choice chosen;
    app.add_option("--model", chosen.models, "NAME[=SPEC], as model_server takes it; repeatable");
    app.add_option("--graphs", chosen.graphs, "on, off or both")->delimiter(',')->check(CLI::IsMember({"on", "off"}));
    app.add_option("--calls", chosen.calls, "calls of one caller (1000)")->check(CLI::Range(10, 1'000'000));
    app.add_option("--callers", chosen.callers, "callers at once (16)")->check(CLI::Range(1, 16));
    app.add_option("--server", chosen.server_query, "query of the server's URI: workers=4&poll=busy, say");
    app.add_option("--client", chosen.client_query, "query of the clients' URI");
    app.add_option("--json", chosen.json, "writes the rows to FILE");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(chosen);
    } catch (const std::exception& failure) {
        return report::complain(program, failure.what());
    }
}
