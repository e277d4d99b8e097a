// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"
#include "report/child_process.hpp"
#include "report/cpu_time.hpp"
#include "report/program.hpp"
#include "work.hpp"

#include <array>
#include <csignal>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds patience{20};

void answer_with_sum(exchange one) {
    if (one.response().size() < answer_bytes || one.request().size() % 8 != 0) {
        (void)one.fail(status::invalid_argument, 0, "a request is whole 8-byte words");
        return;
    }
    one.mark(stage::inference);
    sum_on_gpu(one.stream(), one.request(), one.response());
    (void)one.reply(answer_bytes);
}

result<server> listen(context& ctx, const std::string& uri, memory_kind memory, bool pinned) {
    server_options options;
    options.memory = memory;
    options.pin_slots = pinned;
    options.max_request_bytes = options.max_response_bytes = std::size_t{1} << 30;
    options.max_memory_bytes = std::size_t{32} << 30;
    options.security.insecure = true;
    options.peer_timeout = std::chrono::seconds{5};
    return server::listen(ctx, {uri}, answer_with_sum, options);
}

std::size_t resident_bytes(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/statm", process));
    std::size_t total = 0;
    std::size_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

gpu_server::gpu_server() = default;
gpu_server::gpu_server(gpu_server&&) noexcept = default;
gpu_server& gpu_server::operator=(gpu_server&&) noexcept = default;
gpu_server::~gpu_server() {
    if (there_) (void)there_->stop(patience);
}

result<gpu_server> gpu_server::start(context& ctx, const gpu_case& what, memory_kind memory) {
    gpu_server made;
    if (what.scheme == "local") {
        auto here = listen(ctx, "local://gpu-bench", memory, what.pinned);
        if (!here) return here.error();
        made.here_ = std::make_unique<server>(std::move(*here));
        made.uri_ = made.here_->endpoints().at(0);
        return made;
    }
    const std::string place = what.scheme == "shm" ? "gpu-bench-" + std::to_string(::getpid()) : "127.0.0.1:0";
    std::vector<std::string> command{report::program_path(), "--serve", what.scheme + "://" + place, "--gpu",
                                     std::to_string(memory.ordinal)};
    if (!what.pinned) command.emplace_back("--pageable");
    auto there = report::child_process::start(command);
    if (!there) return there.error();
    made.there_ = std::make_unique<report::child_process>(std::move(*there));
    auto uri = made.there_->wait_for("listens ", patience);
    if (!uri) return error{status::system_error, 0, what.scheme + ": the server did not start"};
    made.uri_ = std::move(*uri);
    return made;
}

result<gpu_server::usage> gpu_server::used() const {
    const pid_t process = there_ ? there_->id() : ::getpid();
    usage out;
    const auto cpu = report::cpu_time_of(process);
    if (!cpu) return error{status::system_error, 0, "the server is gone"};
    out.cpu_us = static_cast<double>(cpu->count()) / 1e3;
    out.ram_bytes = resident_bytes(process);
    if (here_) {
        out.gpu_bytes = here_->statistics().gpu_memory_bytes;
        return out;
    }
    ::kill(process, SIGUSR1);
    const auto bytes = there_->wait_for("gpu_bytes ", patience);
    if (!bytes) return error{status::system_error, 0, "the server does not answer"};
    out.gpu_bytes = std::stoull(*bytes);
    return out;
}

int serve_until_stopped(const std::string& uri, memory_kind memory, bool pinned) {
    sigset_t signals{};
    sigemptyset(&signals);
    for (const int number : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&signals, number);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    auto ctx = context::open();
    if (!ctx) return report::complain("gpu_bench", ctx.error());
    auto served = listen(*ctx, uri, memory, pinned);
    if (!served) return report::complain("gpu_bench", served.error());
    std::cout << "listens " << served->endpoints().at(0) << std::endl;
    for (int number = 0; sigwait(&signals, &number) == 0 && number == SIGUSR1;)
        std::cout << "gpu_bytes " << served->statistics().gpu_memory_bytes << std::endl;
    return 0;
}

}  // namespace accel::bench
