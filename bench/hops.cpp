// SPDX-License-Identifier: Apache-2.0
#include "hops.hpp"

#include "loopback_socket.hpp"
#include "zmq_hop.hpp"

#include <cstdlib>
#include <fstream>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds patience{10};

/// A port that was free a moment ago; "0" where there is none.
std::string free_port() {
    const descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    if (::bind(socket.get(), address, length) != 0 || ::getsockname(socket.get(), address, &length) != 0) return "0";
    return std::to_string(ntohs(at.sin_port));
}

[[nodiscard]] bool answers_at(const std::string& port) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
        if (connect_on_loopback(port)) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    return false;
}

/// One process, which ends with this program. Buffers that hold many segments of a large message: the default of 16 KiB
/// would count against it.
std::string nginx_settings(const std::filesystem::path& folder, const std::string& module, const std::string& port,
                           std::string_view server) {
    return fmt::format(
        "load_module {};\n"
        "daemon off;\nmaster_process off;\nworker_processes 1;\n"
        "pid {}/nginx.pid;\nerror_log {}/error.log;\n"
        "events {{ worker_connections 64; }}\n"
        "stream {{\n"
        "  server {{\n"
        "    listen 127.0.0.1:{};\n    proxy_pass {};\n    tcp_nodelay on;\n    proxy_buffer_size 256k;\n"
        "  }}\n"
        "}}\n",
        module, folder.string(), folder.string(), port, server);
}

std::filesystem::path new_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gateway_bench-XXXXXX").string();
    return ::mkdtemp(pattern.data()) == nullptr ? std::filesystem::path{} : std::filesystem::path{pattern};
}

error broken(std::string_view what) {
    return {status::peer_lost, 0, std::string{what}};
}

}  // namespace

hops::~hops() {
    ways_.clear();
    // What passes on ends before what it passes on to.
    while (!processes_.empty()) {
        processes_.back().stop(std::chrono::seconds{3});
        processes_.pop_back();
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

result<hops> hops::open(const hop_choices& chosen, std::size_t size_bytes) {
    hops made;
    if (auto done = made.open_ours(chosen, size_bytes); !done) return done.error();
    if (auto done = made.open_zmq(size_bytes); !done) return done.error();
    return made;
}

/// What follows `announces` on the line that says that the process is ready.
result<std::string> hops::start(std::vector<std::string> command, std::string_view announces) {
    auto made = report::child_process::start(command);
    if (!made) return made.error();
    processes_.push_back(std::move(*made));
    auto said = processes_.back().wait_for(announces, patience);
    if (!said) return broken(fmt::format("{} did not start", command.front()));
    return std::move(*said);
}

result<void> hops::connect(std::string name, std::string direct, const side& how, const std::string& endpoint,
                           std::size_t size_bytes) {
    auto client = how.connect(endpoint, size_bytes);
    if (!client) return client.error();
    ways_.push_back({std::move(name), std::move(direct), std::move(*client)});
    return {};
}

result<void> hops::open_ours(const hop_choices& chosen, std::size_t size_bytes) {
    const std::string options = "?insecure=true&poll=" + chosen.poll;
    const side how = ours("tcp", "tcp", options, options);
    auto server = start({report::program_path(), "serve", "ours", how.server_arguments[1]}, "serving ");
    if (!server) return server.error();
    auto gateway =
        start({chosen.gateway, "--listen", "tcp://127.0.0.1:0?insecure=true", "--to",
               fmt::format("{}?insecure=true&request_bytes={}&response_bytes={}", *server, size_bytes, size_bytes),
               "--channels", "1", "--slots", "4", "--spin", chosen.gateway_spin},
              "forwarding at ");
    if (!gateway) return gateway.error();
    if (auto done = connect("tcp", "", how, *server, size_bytes); !done) return done;
    if (auto done = connect("tcp, gateway", "tcp", how, *gateway, size_bytes); !done) return done;
    return open_nginx(chosen, how, *server, size_bytes);
}

result<void> hops::open_nginx(const hop_choices& chosen, const side& how, const std::string& server,
                              std::size_t size_bytes) {
    if (!std::filesystem::exists(chosen.nginx) || !std::filesystem::exists(chosen.nginx_stream)) {
        absent_ = fmt::format(
            "nginx stream is not measured: there is no {} with {} (Debian: nginx-light, "
            "libnginx-mod-stream)",
            chosen.nginx, chosen.nginx_stream);
        return {};
    }
    folder_ = new_folder();
    const std::string port = free_port();
    const std::filesystem::path file = folder_ / "nginx.conf";
    constexpr std::string_view scheme = "tcp://";
    std::ofstream(file) << nginx_settings(folder_, chosen.nginx_stream, port, server.substr(scheme.size()));
    auto made = report::child_process::start(
        {chosen.nginx, "-p", folder_.string(), "-c", file.string(), "-e", (folder_ / "error.log").string()});
    if (!made) return made.error();
    processes_.push_back(std::move(*made));
    if (!answers_at(port)) return broken("nginx did not start");
    return connect("tcp, nginx stream", "tcp", how, "tcp://127.0.0.1:" + port, size_bytes);
}

result<void> hops::open_zmq(std::size_t size_bytes) {
    const side how{"ZeroMQ", {}, connect_request_socket};
    auto server = start({report::program_path(), "serve", "zmq-reply", "-"}, "serving ");
    if (!server) return server.error();
    auto proxy = start({report::program_path(), "serve", "zmq-proxy", *server}, "serving ");
    if (!proxy) return proxy.error();
    if (auto done = connect("ZeroMQ", "", how, *server, size_bytes); !done) return done;
    return connect("ZeroMQ, zmq_proxy", "ZeroMQ", how, *proxy, size_bytes);
}

int serve_hop(const std::vector<std::string>& arguments) {
    if (arguments.size() < 2) return 2;
    if (arguments[0] == "ours") return serve_ours(arguments[1]);
    if (arguments[0] == "zmq-reply") return serve_reply_socket();
    if (arguments[0] == "zmq-proxy") return serve_zmq_proxy(arguments[1]);
    return 2;
}

}  // namespace accel::bench
