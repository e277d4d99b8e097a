// SPDX-License-Identifier: Apache-2.0
#include "door_rig.hpp"

#include "serving/doors/clients/infer_talk.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace accel::examples::serving::doors::tests {
namespace {

using std::chrono_literals::operator""s;

constexpr std::chrono::seconds process_patience{30};
constexpr std::size_t numbers = 8;
constexpr std::size_t echoed = 16384;

/// Models of the stand-in, and how many numbers they give and take.
struct stand_in_model {
    const char* name;
    std::size_t outputs;
    std::size_t inputs = numbers;
};
constexpr stand_in_model models[] = {{"double", numbers}, {"slow", numbers},   {"failing", numbers},
                                     {"short", numbers},  {"large", 1 << 20},  {"echo", echoed, echoed},
                                     {"held", numbers},   {"caught", numbers}, {"release", numbers}};

std::string described(const stand_in_model& one) {
    const auto tensor = [](const char* name, std::size_t size) {
        return nlohmann::json{{"name", name}, {"datatype", "FP32"}, {"shape", {size}}};
    };
    const nlohmann::json document{
        {"name", one.name}, {"inputs", {tensor("x", one.inputs)}}, {"outputs", {tensor("y", one.outputs)}}};
    return document.dump();
}

std::string new_file(const std::string& text) {
    static std::atomic<unsigned> next{0};
    const auto path = std::filesystem::temp_directory_path() /
                      ("accel_door-" + std::to_string(::getpid()) + '-' + std::to_string(next++));
    std::ofstream(path) << text;
    return path.string();
}

report::child_process start(const std::vector<std::string>& command) {
    auto made = report::child_process::start(command);
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(made).value();
}

std::string ready_line(report::child_process& of) {
    auto line = of.read_line(process_patience);
    if (!line) throw std::runtime_error("a program ended before it was ready");
    return *line;
}

std::array<float, numbers> eight_times(float value) {
    std::array<float, numbers> out{};
    out.fill(value);
    return out;
}

clients::line connected(const std::string& address) {
    auto made = clients::line::connect(address);
    if (!made) throw std::runtime_error("cannot connect to " + address);
    return std::move(*made);
}

}  // namespace

door_rig::door_rig(const std::vector<std::string>& options) {
    server_.emplace(start({ACCEL_TEST_STAND_IN, "tcp://127.0.0.1:0?insecure=true"}));
    const auto uri = server_->wait_for("serving ", process_patience);
    if (!uri) throw std::runtime_error("the server has not started");
    std::vector<std::string> command{ACCEL_TEST_DOOR, "--grpc", "127.0.0.1:0", "--json"};
    for (const stand_in_model& each : models) {
        files_.push_back(new_file(described(each)));
        // `large` has a channel of its own, so that others do not get its room.
        const std::string own = each.outputs > echoed ? "&slots=4" : "";
        for (const std::string& word : {std::string{"--model"}, each.name + ("=" + *uri) + "?insecure=true" + own,
                                        std::string{"--shapes"}, files_.back()})
            command.push_back(word);
    }
    command.insert(command.end(), options.begin(), options.end());
    door_.emplace(start(command));
    grpc_ = nlohmann::json::parse(ready_line(*door_)).at("endpoints").at(0).get<std::string>();
    if (const std::size_t scheme = grpc_.find("://"); scheme != std::string::npos) grpc_.erase(0, scheme + 3);
}

door_rig::~door_rig() {
    if (door_) door_->stop(process_patience);
    server_->stop(process_patience);
    std::error_code ignored;
    for (const std::string& each : files_) std::filesystem::remove(each, ignored);
}

std::optional<std::chrono::milliseconds> door_rig::end() {
    const auto began = std::chrono::steady_clock::now();
    ::kill(door_->id(), SIGTERM);
    const auto status = door_->wait(process_patience);
    door_.reset();
    if (status != 0) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
}

grpc_client::grpc_client(const std::string& address, clients::grpc_flow flow)
    : line_(connected(address)), wire_(flow) {}

bool grpc_client::flush() {
    return go_on(line_, wire_, 20s, [this] { return wire_.unsent().empty(); });
}

bool grpc_client::finish(std::chrono::milliseconds patience) {
    return go_on(line_, wire_, patience, [this] { return wire_.ended(); });
}

std::optional<int> grpc_client::call(std::string_view method, std::string_view message) {
    wire_.open(method);
    wire_.send_message(message);
    if (!finish()) return std::nullopt;
    return wire_.code();
}

void grpc_client::ask(const std::string& model, float value) {
    wire_.open(clients::infer_path);
    wire_.send_message(request_message(model, value));
}

std::optional<int> grpc_client::infer(const std::string& model, float value) {
    ask(model, value);
    if (!finish()) return std::nullopt;
    return wire_.code();
}

bool grpc_client::has_twice(float value) const {
    const auto wanted = eight_times(2 * value);
    const std::string_view got = clients::only_output(wire_.message());
    return got.size() == sizeof wanted && std::memcmp(got.data(), wanted.data(), sizeof wanted) == 0;
}

bool grpc_client::closed(std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
        if (!line_.wait(false, std::chrono::milliseconds{50})) continue;
        if (!line_.read(wire_)) return true;
    }
    return false;
}

std::string request_message(const std::string& model, float value) {
    const auto values = eight_times(value);
    return clients::infer_message({model, values.size()}, std::as_bytes(std::span{values}));
}

}  // namespace accel::examples::serving::doors::tests
