// SPDX-License-Identifier: Apache-2.0
#include "hops.hpp"

#include "bench/serving/nginx.hpp"
#include "zmq_hop.hpp"

#include <filesystem>

#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds patience{10};

/// Buffers that hold many segments of a large message: the default of 16 KiB would count against it.
std::string stream_settings(const std::string& module, const std::string& port, std::string_view server) {
    return fmt::format(
        "load_module {};\n"
        "events {{ worker_connections 64; }}\n"
        "stream {{\n"
        "  server {{\n"
        "    listen 127.0.0.1:{};\n    proxy_pass {};\n    tcp_nodelay on;\n    proxy_buffer_size 256k;\n"
        "  }}\n"
        "}}\n",
        module, port, server);
}

error broken(std::string_view what) {
    return {status::peer_lost, 0, std::string{what}};
}

}  // namespace

hops::~hops() {
    ways_.clear();
    // What passes on ends before what it passes on to.
    nginx_.reset();
    while (!processes_.empty()) {
        processes_.back().stop(std::chrono::seconds{3});
        processes_.pop_back();
    }
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
    constexpr std::string_view scheme = "tcp://";
    auto made = nginx::start(chosen.nginx, [&](const std::string&, const std::string& port) {
        return stream_settings(chosen.nginx_stream, port, std::string_view{server}.substr(scheme.size()));
    });
    if (!made) return made.error();
    nginx_.emplace(std::move(*made));
    return connect("tcp, nginx stream", "tcp", how, "tcp://127.0.0.1:" + nginx_->port(), size_bytes);
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
