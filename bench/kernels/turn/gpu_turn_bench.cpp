// SPDX-License-Identifier: Apache-2.0
// From a request's header in the GPU's memory to the doorbell of its answer: a service that all blocks share,
// beside one whose sessions have one owner each. Compares every answer.
#include "bench/kernels/emulated.hpp"
#include "report/program.hpp"
#include "report/table.hpp"
#include "turn.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel;
using namespace std::chrono_literals;

struct settings {
    std::uint64_t turns = 100'000;
    std::vector<std::string> cases{"1x1", "64x8"};
    std::vector<std::string> ways{"shared", "proxy", "exclusive", "exclusive-proxy", "exclusive-gpu"};
    std::vector<std::string> scopes{"warp", "thread"};
    std::uint32_t bytes = 64;
    unsigned threads = 4;
    bool host_slots = false;
    std::string json;
};

struct turn_case {
    std::uint32_t sessions = 1;
    std::uint32_t blocks = 1;
    bool exclusive = false;
    bench::turn_scope scope = bench::turn_scope::warp;
    queue_location queues = queue_location::automatic;
    gpu_engine engine = gpu_engine::direct;
};

/// A channel with one call at a time.
class caller {
  public:
    caller(channel through, std::uint32_t bytes, std::uint64_t seed)
        : channel_(std::move(through)), bytes_(bytes), next_(seed) {}
    [[nodiscard]] bool begin() {
        const auto call = channel_.begin();
        if (!call) return false;
        for (std::size_t at = 0; at < bytes_; at += sizeof next_)
            std::memcpy(call->request.data() + at, &++next_, sizeof next_);
        return channel_.submit(call->id, bytes_) == status::ok;
    }
    /// True: a call has ended. `wrong` counts those whose answer is not their request.
    [[nodiscard]] bool end(std::uint64_t& wrong) {
        completion done;
        if (channel_.poll({&done, 1}) == 0) return false;
        std::uint64_t expected = next_ - bytes_ / sizeof next_;
        bool good = done.status == status::ok && done.response.size() == bytes_;
        for (std::size_t at = 0; good && at < bytes_; at += sizeof expected) {
            ++expected;
            good = std::memcmp(done.response.data() + at, &expected, sizeof expected) == 0;
        }
        wrong += good ? 0U : 1U;
        return true;
    }

  private:
    channel channel_;
    std::uint32_t bytes_;
    std::uint64_t next_;
};

/// Calls until `left` is used up; returns how many answers were wrong.
std::uint64_t call_in_turn(std::vector<caller>& all, std::atomic<std::int64_t>& left) {
    std::uint64_t wrong = 0;
    std::size_t open = 0;
    std::vector<bool> busy(all.size());
    auto last = std::chrono::steady_clock::now();
    do {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (busy[i] && all[i].end(wrong)) {
                busy[i] = false;
                --open;
                last = std::chrono::steady_clock::now();
            }
            if (busy[i] || left.fetch_sub(1) <= 0) continue;
            busy[i] = all[i].begin();
            open += busy[i] ? 1U : 0U;
            wrong += busy[i] ? 0U : 1U;
        }
        if (std::chrono::steady_clock::now() - last > 30s) return wrong + open;
    } while (open > 0);
    return wrong;
}

result<gpu_service> listen(context& ctx, const settings& wanted, const turn_case& what) {
    gpu_service_options options = gpu_service::defaults();
    options.max_sessions = what.sessions;
    options.max_slots = 1;
    options.max_request_bytes = options.max_response_bytes = 4096;
    options.max_client_sessions = what.sessions;
    options.security.insecure = true;
    options.peer_timeout = 10s;
    options.kernels.engine = what.engine;
    options.kernels.host_slots = wanted.host_slots;
    options.kernels.sharing = what.exclusive ? service_sharing::exclusive : service_sharing::shared;
    options.kernels.queues = what.queues;
    return gpu_service::listen(ctx, "gpu://127.0.0.1:0", options);
}

result<std::uint64_t> drive(context& ctx, const std::string& uri, const settings& wanted, const turn_case& what) {
    const unsigned threads = std::min(wanted.threads, what.sessions);
    std::vector<std::vector<caller>> callers(threads);
    channel_options options;
    options.slots = 1;
    options.request_bytes = options.response_bytes = 4096;
    options.security.insecure = true;
    options.peer_timeout = 10s;
    options.call_timeout = 30s;
    for (std::uint32_t i = 0; i < what.sessions; ++i) {
        auto made = channel::connect(ctx, uri, options);
        if (!made) return made.error();
        callers[i % threads].emplace_back(std::move(*made), wanted.bytes, std::uint64_t{i} << 40);
    }
    std::atomic<std::int64_t> left{static_cast<std::int64_t>(wanted.turns)};
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::thread> running;
    for (auto& each : callers) running.emplace_back([&] { wrong += call_in_turn(each, left); });
    for (std::thread& each : running) each.join();
    return wrong.load();
}

struct row {
    bench::turn_times turns;  ///< sorted
    std::uint64_t wrong = 0;
    bool emulated = false;
};
double at(const std::vector<double>& sorted, double share) {
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}
double mean(const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

result<row> measure(const settings& wanted, const turn_case& what) {
    auto server = context::open();
    auto client = context::open();
    if (!server) return server.error();
    if (!client) return client.error();
    auto kernel = bench::turn_kernel::prepare(what.blocks, static_cast<std::uint32_t>(wanted.turns));
    if (!kernel) return kernel.error();
    auto service = listen(*server, wanted, what);
    if (!service) return service.error();
    if (auto launched = kernel->launch(service->ref(), what.scope, what.exclusive); !launched) return launched.error();
    auto wrong = drive(*client, service->endpoint(), wanted, what);
    if (const status ended = service->stop(kernel->stream(), 20s); ended != status::ok)
        return error{ended, 0, "the kernel does not end"};
    if (!wrong) return wrong.error();
    auto turns = kernel->turns();
    if (!turns) return turns.error();
    if (turns->from_look.empty()) return error{status::system_error, 0, "no turn was seen"};
    std::sort(turns->from_look.begin(), turns->from_look.end());
    std::sort(turns->from_seen.begin(), turns->from_seen.end());
    return row{std::move(*turns), *wrong, bench::is_emulated(*server, "gpu")};
}

bool parse_way(const std::string& text, turn_case& out) {
    out.exclusive = text.starts_with("exclusive");
    if (text == "exclusive") out.queues = queue_location::host;
    if (text == "exclusive-gpu") out.queues = queue_location::gpu;
    if (text.ends_with("proxy")) out.engine = gpu_engine::proxy;
    constexpr std::array known{"shared", "proxy", "exclusive", "exclusive-proxy", "exclusive-gpu"};
    return std::find(known.begin(), known.end(), text) != known.end();
}
bool parse(const std::string& text, turn_case& out) {
    return std::sscanf(text.c_str(), "%ux%u", &out.sessions, &out.blocks) == 2 && out.sessions > 0 && out.blocks > 0;
}

/// Shared services are measured with warps alone.
bool parse_scope(const std::string& text, turn_case& out) {
    out.scope = text == "thread" ? bench::turn_scope::thread : bench::turn_scope::warp;
    return text == "thread" || text == "warp";
}
bool is_measured(const turn_case& what) {
    return what.exclusive || what.scope == bench::turn_scope::warp;
}

struct named_case {
    std::string way;
    std::string scope;
    turn_case what;
};

result<std::vector<named_case>> cases_of(const settings& wanted) {
    const auto wrong = [](const char* sentence) { return error{status::invalid_argument, 0, sentence}; };
    std::vector<named_case> out;
    for (const std::string& each : wanted.cases)
        for (const std::string& way : wanted.ways)
            for (const std::string& scope : wanted.scopes) {
                named_case one{way, scope, {}};
                if (!parse(each, one.what)) return wrong("--case takes SESSIONSxBLOCKS");
                if (!parse_way(way, one.what))
                    return wrong("--way takes shared, proxy, exclusive, exclusive-proxy and exclusive-gpu");
                if (!parse_scope(scope, one.what)) return wrong("--scope takes warp and thread");
                if (is_measured(one.what)) out.push_back(one);
            }
    return out;
}

nlohmann::json json_of(const named_case& one, std::uint32_t bytes, const row& got) {
    return {{"way", one.way},
            {"scope", one.scope},
            {"sessions", one.what.sessions},
            {"blocks", one.what.blocks},
            {"bytes", bytes},
            {"turns", got.turns.from_look.size()},
            {"seen_p50_ns", at(got.turns.from_seen, 0.5)},
            {"seen_p99_ns", at(got.turns.from_seen, 0.99)},
            {"seen_mean_ns", mean(got.turns.from_seen)},
            {"look_p50_ns", at(got.turns.from_look, 0.5)},
            {"look_p90_ns", at(got.turns.from_look, 0.9)},
            {"look_p99_ns", at(got.turns.from_look, 0.99)},
            {"look_max_ns", at(got.turns.from_look, 1)},
            {"wrong", got.wrong},
            {"emulated", got.emulated}};
}

int run(const settings& wanted) {
    report::table table({{"way", report::table::align::left},
                         {"scope", report::table::align::left},
                         {"sessions"},
                         {"blocks"},
                         {"turns"},
                         {"seen: p50 ns"},
                         {"mean"},
                         {"p99"},
                         {"look: p50 ns"},
                         {"p90"},
                         {"p99"},
                         {"most"},
                         {"wrong"},
                         {"device", report::table::align::left}});
    nlohmann::json rows = nlohmann::json::array();
    auto cases = cases_of(wanted);
    if (!cases) return report::complain("gpu_turn_bench", cases.error());
    bool good = true;
    for (const named_case& one : *cases) {
        auto got = measure(wanted, one.what);
        if (!got) return report::complain("gpu_turn_bench", got.error());
        good = good && got->wrong == 0;
        const auto [look, seen, wrong, emulated] =
            std::tie(got->turns.from_look, got->turns.from_seen, got->wrong, got->emulated);
        const auto ns = [](double value) { return fmt::format("{:.0f}", value); };
        table.add_row({one.way, one.scope, std::to_string(one.what.sessions), std::to_string(one.what.blocks),
                       std::to_string(look.size()), ns(at(seen, 0.5)), ns(mean(seen)), ns(at(seen, 0.99)),
                       ns(at(look, 0.5)), ns(at(look, 0.9)), ns(at(look, 0.99)), ns(at(look, 1)), std::to_string(wrong),
                       emulated ? "emulated" : "real"});
        rows.push_back(json_of(one, wanted.bytes, *got));
    }
    std::cout << table.text()
              << "Until an answer's doorbell has rung; by proxy, until its descriptor is in the ring; of shared "
                 "services, until `reply` has returned. seen: since the header was seen (the exchange's arrival), by "
                 "the GPU's clock, which goes in steps of 32 ns. look: since the start of the look that saw it, by the "
                 "clock of the GPU's processor; of shared services since the start of `take`.\n";
    if (!wanted.json.empty() && !report::write_json(wanted.json, rows)) return 1;
    return good ? 0 : report::complain("gpu_turn_bench", "answers were wrong");
}

}  // namespace

int main(int argc, char** argv) {
    // A module that is loaded later would wait for the kernel.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    CLI::App app{"How long a GPU-resident service takes from a request's header to the doorbell of its answer"};
    settings wanted;
    app.add_option("--turns", wanted.turns, "calls of each case");
    app.add_option("--case", wanted.cases, "SESSIONSxBLOCKS, comma-separated (1x1,64x8)")->delimiter(',');
    app.add_option("--way", wanted.ways,
                   "comma-separated: shared, proxy, exclusive, exclusive-proxy, exclusive-gpu (queues in its memory)")
        ->delimiter(',');
    app.add_option("--scope", wanted.scopes, "comma-separated: warp, thread; who serves a block's sessions")
        ->delimiter(',');
    app.add_option("--bytes", wanted.bytes, "of a request, a multiple of 8 up to 4096");
    app.add_option("--threads", wanted.threads, "of clients, at most");
    app.add_flag("--host-slots", wanted.host_slots, "slots in pinned memory of the host");
    app.add_option("--json", wanted.json, "writes the rows to FILE");
    CLI11_PARSE(app, argc, argv);
    if (wanted.bytes == 0 || wanted.bytes % 8 != 0 || wanted.bytes > 4096 || wanted.turns == 0 || wanted.threads == 0)
        return report::complain("gpu_turn_bench",
                                "--bytes takes multiples of 8 up to 4096, --turns and --threads 1 on");
    return run(wanted);
}
