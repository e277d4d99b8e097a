// SPDX-License-Identifier: Apache-2.0
#include "server.hpp"

#include "report/child_process.hpp"
#include "report/cpu_time.hpp"

#include <csignal>
#include <sstream>
#include <utility>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds patience{30};
constexpr std::chrono::seconds patience_to_end{15};

}  // namespace

inference_server::inference_server() = default;
inference_server::inference_server(inference_server&&) noexcept = default;
inference_server& inference_server::operator=(inference_server&&) noexcept = default;
inference_server::~inference_server() {
    if (process_) (void)process_->stop(patience_to_end);
}

result<inference_server> inference_server::start(const network_choice& choice, const std::string& who) {
    std::vector<std::string> command{report::program_path(),    "--serve", who, "--network", choice.name, "--gpu",
                                     std::to_string(choice.gpu)};
    if (choice.half) command.emplace_back("--half");
    auto process = report::child_process::start(command);
    if (!process) return process.error();
    inference_server made;
    made.process_ = std::make_unique<report::child_process>(std::move(*process));
    if (auto read = made.read_start(); !read) return read.error();
    return made;
}

/// "lengths IN OUT", "serves SCHEME WAY URI" for each, "ready".
result<void> inference_server::read_start() {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        const auto line = process_->read_line(std::max(left, std::chrono::milliseconds{0}));
        if (!line) return error{status::system_error, 0, "the server did not start"};
        std::istringstream words(*line);
        std::string kind;
        words >> kind;
        if (kind == "ready") return {};
        if (kind == "lengths") words >> input_bytes_ >> output_bytes_;
        if (kind != "serves") continue;
        serving what;
        std::string uri;
        words >> what.scheme >> what.way >> uri;
        uris_[what] = uri;
    }
}

result<std::chrono::nanoseconds> inference_server::cpu_time() const {
    const auto used = report::cpu_time_of(process_->id());
    if (!used) return error{status::system_error, 0, "the server is gone"};
    return *used;
}

std::optional<graph_times> inference_server::stop() {
    ::kill(process_->id(), SIGTERM);
    const auto told = process_->wait_for("iterations ", patience_to_end);
    (void)process_->stop(patience_to_end);
    if (!told) return std::nullopt;
    graph_times out;
    std::istringstream words(*told);
    words >> out.nodes >> out.iterations >> out.waiting >> out.copy_in >> out.work >> out.copy_out >> out.answer >>
        out.mean >> out.min;
    if (!words) return std::nullopt;
    return out;
}

}  // namespace accel::bench
