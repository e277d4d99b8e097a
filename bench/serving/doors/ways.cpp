// SPDX-License-Identifier: Apache-2.0
#include "ways.hpp"

#include "bench/transport/side.hpp"
#include "grpc_peers.hpp"
#include "report/program.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds door_patience{20};
constexpr const char* grpc_echo_name = "gRPC echo";
constexpr const char* tcp_echo_name = "tcp echo";

/// Connections to the server are kept, and buffers hold a whole message of the larger ones: the defaults would count
/// against it. What it would write to files stays in its folder.
std::string grpc_pass_settings(const std::string& folder, const std::string& port, const std::string& server) {
    std::string paths;
    for (const char* each : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
        paths += fmt::format("  {}_temp_path {}/{};\n", each, folder, each);
    return fmt::format(
        "events {{ worker_connections 256; }}\n"
        "http {{\n"
        "  access_log off;\n{}"
        "  client_max_body_size 0;\n  client_body_buffer_size 1m;\n  http2_body_preread_size 1m;\n"
        "  http2_recv_buffer_size 1m;\n  http2_chunk_size 16k;\n  grpc_buffer_size 256k;\n  tcp_nodelay on;\n"
        "  upstream behind {{ server {}; keepalive 64; keepalive_requests 1000000000; }}\n"
        "  server {{\n"
        "    listen 127.0.0.1:{} http2;\n    keepalive_requests 1000000000;\n"
        "    location / {{ grpc_pass grpc://behind; }}\n"
        "  }}\n"
        "}}\n",
        paths, server, port);
}

/// The model "echo": a vector of floats each way.
std::string described_echo(std::size_t size_bytes) {
    const std::size_t size = size_bytes / sizeof(float);
    return fmt::format(R"({{"name":"echo","inputs":[{{"name":"x","datatype":"FP32","shape":[{}]}}],)"
                       R"("outputs":[{{"name":"y","datatype":"FP32","shape":[{}]}}]}})",
                       size, size);
}

void give_back(exchange request) {
    const std::size_t length = request.request().size();
    if (length > request.response().size()) {
        static_cast<void>(request.fail(status::message_too_large, 0, "there is no room for the answer"));
        return;
    }
    std::memcpy(request.response().data(), request.request().data(), length);
    tensor one{.type = {}, .rank = 1};
    one.shape[0] = static_cast<std::uint32_t>(length / sizeof(float));
    static_cast<void>(request.describe(length, std::span{&one, 1}));
    static_cast<void>(request.reply(length));
}

int serve_tcp_echo() {
    report::block_stop_signals();
    auto ctx = context::open();
    if (!ctx) return report::complain("tcp_echo", ctx.error());
    auto running = server::listen(*ctx, {"tcp://127.0.0.1:0?insecure=true"}, {.named = {{"echo", give_back}}});
    if (!running) return report::complain("tcp_echo", running.error());
    announce(running->endpoints().front());
    report::wait_for_stop_signal();
    return 0;
}

/// What the program says when it is ready, and what of it is not the address.
struct gateway_command {
    std::vector<std::string> arguments;
    std::string announces;
};

gateway_command command_of_gateway(const std::string& program, const std::string& server, const std::string& file) {
    return {{program, "--grpc", "127.0.0.1:0", "--model", "echo=" + server + "?insecure=true", "--shapes", file},
            "serving echo at grpc://"};
}

}  // namespace

std::chrono::nanoseconds cpu_time_of(pid_t process) noexcept {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

door_ways::~door_ways() {
    // What passes on ends before what it passes on to.
    nginxes_.clear();
    while (!processes_.empty()) {
        processes_.back().stop(std::chrono::seconds{3});
        processes_.pop_back();
    }
}

/// What follows `announces` on the line that says that the process is ready.
result<std::string> door_ways::start(const std::vector<std::string>& command, std::string_view announces) {
    auto made = report::child_process::start(command);
    if (!made) return made.error();
    processes_.push_back(std::move(*made));
    auto said = processes_.back().wait_for(announces, door_patience);
    if (!said) return error{status::peer_lost, 0, command.front() + " did not start"};
    return std::move(*said);
}

result<door_ways> door_ways::open(const door_choices& chosen, std::size_t size_bytes) {
    door_ways made;
    auto echo = made.start({report::program_path(), "serve", "grpc-echo", std::to_string(size_bytes)}, "serving ");
    if (!echo) return echo.error();
    made.ways_.push_back({grpc_echo_name, {}, *echo, 0});
    if (auto done = made.open_gateway(chosen, size_bytes); !done) return done.error();
    const std::string gateway = made.ways_.back().address;
    if (auto done = made.open_peers(chosen, *echo, grpc_echo_name); !done) return done.error();
    if (auto done = made.open_peers(chosen, gateway, ours_name); !done) return done.error();
    return made;
}

result<void> door_ways::open_gateway(const door_choices& chosen, std::size_t size_bytes) {
    auto server = start({report::program_path(), "serve", "tcp-echo"}, "serving ");
    if (!server) return server.error();
    const std::string file = std::filesystem::temp_directory_path() / fmt::format("accel_echo-{}.json", ::getpid());
    std::ofstream(file) << described_echo(size_bytes);
    const auto command = command_of_gateway(chosen.gateway, *server, file);
    auto address = start(command.arguments, command.announces);
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    if (!address) return address.error();
    const std::size_t scheme = address->find("://");
    if (scheme != std::string::npos) address->erase(0, scheme + 3);
    ways_.push_back({ours_name, tcp_echo_name, *address, processes_.back().id()});
    return {};
}

/// Both proxies to one server of gRPC.
result<void> door_ways::open_peers(const door_choices& chosen, const std::string& behind, const std::string& name) {
    auto proxy = start({report::program_path(), "serve", "grpc-proxy", behind}, "serving ");
    if (!proxy) return proxy.error();
    ways_.push_back({"gRPC proxy", name, *proxy, processes_.back().id()});
    if (!std::filesystem::exists(chosen.nginx)) {
        absent_ = fmt::format("nginx grpc_pass is not measured: there is no {} (Debian: nginx-light)", chosen.nginx);
        return {};
    }
    auto made = nginx::start(chosen.nginx, [&behind](const std::string& folder, const std::string& port) {
        return grpc_pass_settings(folder, port, behind);
    });
    if (!made) return made.error();
    ways_.push_back({"nginx grpc_pass", name, "127.0.0.1:" + made->port(), made->id()});
    nginxes_.push_back(std::move(*made));
    return {};
}

int serve_door_peer(const std::vector<std::string>& arguments) {
    if (arguments.size() == 1 && arguments[0] == "tcp-echo") return serve_tcp_echo();
    if (arguments.size() == 2 && arguments[0] == "grpc-echo") return serve_grpc_echo(std::stoul(arguments[1]));
    if (arguments.size() == 2 && arguments[0] == "grpc-proxy") return serve_grpc_proxy(arguments[1]);
    return 2;
}

}  // namespace accel::bench
