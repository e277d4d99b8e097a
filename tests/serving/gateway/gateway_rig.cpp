// SPDX-License-Identifier: Apache-2.0
#include "gateway_rig.hpp"

#include "handler_memory.hpp"
#include "loopback.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <stdexcept>

namespace accel::tests {
namespace {

/// A process that is killed closes its connections at once. Half a second of silence is usual on a busy machine.
constexpr const char* long_silence = "peer_timeout=5s";

/// Whether a scheme stays on this host, so that there is nothing to secure.
[[nodiscard]] bool is_of_this_host(std::string_view uri) {
    return uri.starts_with("shm") || uri.starts_with("local");
}

void change(std::span<std::byte> bytes) {
    for (std::byte& each : bytes) each ^= std::byte{0x5a};
}

}  // namespace

gateway_process::gateway_process(const std::vector<std::string>& arguments, const char* program) {
    std::vector<std::string> all{program != nullptr ? program : ACCEL_TEST_GATEWAY, "--json"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    if (std::ranges::find(all, "--patience") == all.end()) all.insert(all.end(), {"--patience", long_wait()});
    auto started = report::child_process::start(all);
    if (!started) throw std::runtime_error(started.error().message);
    process_.emplace(std::move(started).value());
    const auto line = process_->read_line(std::chrono::duration_cast<std::chrono::milliseconds>(patience(20s)));
    if (!line) throw std::runtime_error("the gateway has not started");
    endpoints_ = nlohmann::json::parse(*line).at("endpoints").get<std::vector<std::string>>();
}

std::string gateway_process::uri(std::size_t i) const {
    return client_uri(endpoints_.at(i));
}

void gateway_process::send_signal(int which) const {
    ::kill(process_->id(), which);
}

nlohmann::json gateway_process::stop() {
    send_signal(SIGTERM);
    const auto line = process_->read_line(std::chrono::duration_cast<std::chrono::milliseconds>(patience(20s)));
    const auto ended = process_->wait(std::chrono::duration_cast<std::chrono::milliseconds>(patience(20s)));
    if (!line || ended != 0) throw std::runtime_error("the gateway has not ended as it should");
    return nlohmann::json::parse(*line);
}

std::string client_uri(const std::string& endpoint) {
    if (is_of_this_host(endpoint)) return endpoint + "?" + long_silence;
    // One wire; this end has no GPU.
    const bool gdr = endpoint.starts_with("gdr://");
    return (gdr ? "rdma" + endpoint.substr(3) : endpoint) + "?insecure=true&" + long_silence;
}

std::string long_wait() {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience(10s)).count()) + "s";
}

std::string server_uri(const std::string& uri) {
    return uri + "&connect_timeout=" + long_wait();
}

std::string any_uri(const std::string& scheme) {
    static std::atomic<unsigned> next{0};
    if (is_of_this_host(scheme))
        return scheme + "://gateway-" + std::to_string(::getpid()) + "-" + std::to_string(next++) + "?" + long_silence;
    return scheme + "://" + own_loopback() + ":0?insecure=true&" + long_silence;
}

server listen(context& ctx, const std::string& uri, const service_table& services) {
    server_options how;
    if (uri.starts_with("gdr://")) prepare(how);
    auto made = server::listen(ctx, std::vector{uri}, services, how);
    if (!made) throw std::runtime_error("listen on " + uri + ": " + made.error().message);
    return std::move(made).value();
}

server listen(context& ctx, const std::string& uri, handler service) {
    return listen(ctx, uri, service_table{{}, std::move(service)});
}

channel connect(context& ctx, const std::string& uri, channel_options how) {
    how.connect_timeout = patience(10s);
    auto made = channel::connect(ctx, uri, how);
    if (!made) throw std::runtime_error("connect to " + uri + ": " + made.error().message);
    return std::move(made).value();
}

void answer_changed(exchange one) {
    std::vector<std::byte> bytes = copy_of(one.request());
    bytes.resize(std::min(bytes.size(), one.response().size()));
    change(bytes);
    put(one.response(), bytes);
    std::array<tensor, 4> room;
    const auto described = one.tensors(room);
    if (described && one.describe(bytes.size(), *described) != status::ok)
        return (void)one.fail(status::application_error, 0, "no room for the description");
    (void)one.reply(bytes.size());
}

bool is_changed(std::span<const std::byte> response, std::uint64_t seed, std::size_t length) {
    if (response.size() != length) return false;
    std::vector<std::byte> bytes(response.begin(), response.end());
    change(bytes);
    return matches(bytes, seed);
}

}  // namespace accel::tests
