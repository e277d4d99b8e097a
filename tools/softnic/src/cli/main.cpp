// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"
#include "fault/rule.hpp"
#include "model/settings.hpp"

#include <CLI/CLI.hpp>

namespace {

namespace cli = accel::softnic::cli;

constexpr const char* footer =
    R"(Environment (softnic run sets it; a program may also be started with LD_PRELOAD=libsoftnic.so):
  SOFTNIC_DEVICES   ib | roce, ports of a device joined by +, devices by comma        [ib]
  SOFTNIC_FABRIC    name of the network; processes with the same name reach each other [default]
  SOFTNIC_MODE      spin | adaptive | deterministic                                    [adaptive]
  SOFTNIC_LINK      RATE,DELAY: a modelled link at every port, such as 25Gb/s,1us       [none]
  SOFTNIC_STRICT    1: delay and reorder what PCIe and the fabric may, trap late WQEs
  SOFTNIC_SEED      seed of strict mode's random choices                               [1]
  SOFTNIC_FAULTS    rules separated by ;
  SOFTNIC_TRACE     file, directory (one file per process) or - for stderr
  SOFTNIC_STATS     1: a line of counters on stderr at exit
  SOFTNIC_CUDA_DMA  kernel | memcpy | off: who moves bytes of GPU memory               [kernel]
  SOFTNIC_PEER_MEMORY  0: ibv_reg_mr refuses GPU memory                                [1]
  SOFTNIC_DMABUF    0: ibv_reg_dmabuf_mr refuses everything                            [1]
  SOFTNIC_CUDA_IDLE_US     the copy kernel ends after this time without work           [500]
  SOFTNIC_CUDA_TIMEOUT_MS  a copy that takes longer is an error                        [2000]
  SOFTNIC_MIN_TIMEOUT_US  floor of the retry timer                                     [4000]
Fault rules: ACTION [KEY=VALUE ...]
  actions  drop  duplicate  delay  reorder  nak:rnr|sequence|access|invalid|operation
           local_protection  error:SYNDROME  qp_error  cq_overrun  port_down
  keys     node=N qpn=N op=send|write|read|atomic|ack|nak|read_response|atomic_response|datagram
           nth=N (only the Nth match)  p=PROBABILITY  seed=N  count=N (at most)  us=N (delay, port_down)
Example: softnic run --fault "drop p=0.01 seed=7" -- ibv_rc_pingpong)";

/// Complains before the program starts, not in the middle of it.
std::string check_faults(const std::string& text) {
    std::string problem;
    return accel::softnic::parse_fault_rules(text, problem) ? std::string{} : problem;
}

template <class Parse>
CLI::Validator checked_by(Parse parse) {
    return CLI::Validator(
        [parse](std::string& text) {
            try {
                static_cast<void>(parse(text));
                return std::string{};
            } catch (const std::exception& error) {
                return std::string(error.what());
            }
        },
        "");
}

void add_run_options(CLI::App& app, cli::launch_options& options) {
    app.add_option("--fabric", options.fabric, "network to join");
    app.add_option("--devices", options.devices, "devices and their ports, in the form of SOFTNIC_DEVICES")
        ->check(checked_by(accel::softnic::parse_devices));
    app.add_option("--mode", options.mode, "spin, adaptive or deterministic")
        ->check(checked_by(accel::softnic::parse_poll_mode));
    app.add_option("--link", options.link, "rate and delay of every port's link, such as 25Gb/s,1us")
        ->check(checked_by(accel::softnic::parse_link));
    app.add_option("--seed", options.seed, "seed of strict mode")->check(CLI::NonNegativeNumber);
    app.add_option("--fault", options.faults, "fault rule; may be given several times")
        ->check(CLI::Validator([](std::string& text) { return check_faults(text); }, ""))
        ->allow_extra_args(false);
    app.add_option("--cuda-dma", options.cuda_dma, "GPU memory: kernel, memcpy or off")
        ->check(checked_by(accel::softnic::parse_cuda_dma));
    app.add_option("--cuda-stay", options.cuda_stay_ms, "ms that the copy kernel stays, with work or without")
        ->check(CLI::Range(1, 10'000));
    app.add_flag("--no-peer-memory", options.without_peer_memory, "ibv_reg_mr refuses GPU memory");
    app.add_flag("--no-dmabuf", options.without_dmabuf, "ibv_reg_dmabuf_mr refuses everything");
    app.add_flag("--strict", options.strict, "strict mode");
    app.add_option("program", options.program, "program and its arguments, after --")->required();
    app.positionals_at_end();
}

}  // namespace

int main(int count, char** arguments) {
    CLI::App app{"softnic: an mlx5 HCA in user space, for the stock verbs libraries"};
    app.footer(footer);
    app.require_subcommand(1);

    cli::launch_options run_options;
    auto* run = app.add_subcommand("run", "run a program with softnic's devices");
    add_run_options(*run, run_options);
    run->add_option("--trace", run_options.trace, "trace to a file, a directory, or stderr (-)");

    cli::launch_options trace_options;
    auto* trace = app.add_subcommand("trace", "run a program and print every packet, WQE and CQE to stderr");
    add_run_options(*trace, trace_options);

    bool probe = false;
    auto* doctor = app.add_subcommand("doctor", "whether programs can run under softnic here, and if not, why");
    doctor->add_flag("--probe", probe, "")->group("");

    std::string shown_fabric = "default";
    auto* stats =
        app.add_subcommand("stats", "messages that exceeded the rate of a modelled link, and the emulation's CPU time");
    stats->add_option("--fabric", shown_fabric, "network whose processes to show");

    CLI11_PARSE(app, count, arguments);
    if (run->parsed()) return cli::launch(run_options);
    if (stats->parsed()) return cli::stats(shown_fabric);
    if (trace->parsed()) {
        trace_options.trace = "-";
        return cli::launch(trace_options);
    }
    return probe ? cli::doctor_probe() : cli::doctor();
}
