// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_endpoint.hpp"

#include "report/address.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::report {
namespace {

using clock = std::chrono::steady_clock;

/// Beyond it the oldest goes: it may be a stranger's that says nothing.
constexpr std::size_t most_connections = 32;
constexpr std::size_t longest_request = 8'192;
/// From the first byte to the last.
constexpr std::chrono::seconds longest_scrape{10};
constexpr std::chrono::milliseconds pause_without_descriptors{50};

/// A descriptor of its own.
class descriptor {
  public:
    explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    [[nodiscard]] int get() const noexcept { return fd_; }

  private:
    int fd_;
};

/// -1: it cannot listen there, as errno says.
descriptor listen_at(const addrinfo& at, bool both_families) {
    constexpr int yes = 1;
    const int v6_only = both_families ? 0 : 1;
    descriptor made(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at.ai_family == AF_INET6) ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
    const bool listens = ::bind(made.get(), at.ai_addr, at.ai_addrlen) == 0 && ::listen(made.get(), SOMAXCONN) == 0;
    return listens ? std::move(made) : descriptor{};
}

/// The first of the host's addresses that this machine has. `*`: one socket for both families, where there are both.
descriptor listen_on(const listen_address& where) {
    const bool all = where.host == "*";
    descriptor made;
    for (const char* host : {all ? "::" : where.host.c_str(), "0.0.0.0"}) {
        addrinfo how{};
        how.ai_socktype = SOCK_STREAM;
        how.ai_flags = AI_PASSIVE;
        addrinfo* found = nullptr;
        if (::getaddrinfo(host, std::to_string(where.port).c_str(), &how, &found) != 0) return made;
        for (const addrinfo* each = found; each != nullptr && made.get() < 0; each = each->ai_next) {
            made = listen_at(*each, all);
            if (made.get() < 0 && errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
        }
        ::freeaddrinfo(found);
        const bool missing = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
        if (made.get() >= 0 || !all || !missing) return made;
    }
    return made;
}

std::uint16_t port_of(int listening) {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    ::getsockname(listening, reinterpret_cast<sockaddr*>(&bound), &size);
    // Both families have it at the same place.
    return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

struct scraper {
    descriptor socket;
    clock::time_point end = clock::now() + longest_scrape;
    std::string request{};
    std::string answer{};  ///< what is still to be sent
};

/// One thread, which answers many at once and waits for none of them.
class http_endpoint : public metrics_endpoint {
  public:
    http_endpoint(const context& ctx, descriptor listening, descriptor ended, std::string address, more_metrics more)
        : ctx_(ctx),
          more_(std::move(more)),
          listening_(std::move(listening)),
          ended_(std::move(ended)),
          address_(std::move(address)),
          thread_([this] { run(); }) {}
    http_endpoint(const http_endpoint&) = delete;
    http_endpoint& operator=(const http_endpoint&) = delete;
    ~http_endpoint() override {
        ::eventfd_write(ended_.get(), 1);
        thread_.join();
    }
    [[nodiscard]] std::string address() const override { return address_; }

  private:
    void run();
    void accept_one();
    [[nodiscard]] bool serve(scraper& one) const;
    [[nodiscard]] std::string answer_to(std::string_view request) const;
    [[nodiscard]] std::string metrics() const;

    const context& ctx_;
    const more_metrics more_;
    const descriptor listening_;
    const descriptor ended_;
    const std::string address_;
    std::list<scraper> scrapers_;  ///< the oldest first
    std::thread thread_;
};

void http_endpoint::run() {
    std::vector<pollfd> items;
    for (;;) {
        items.assign({{ended_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}});
        for (const scraper& each : scrapers_)
            items.push_back({each.socket.get(), static_cast<short>(each.answer.empty() ? POLLIN : POLLOUT), 0});
        const auto longest = std::chrono::milliseconds{longest_scrape}.count();
        ::poll(items.data(), items.size(), scrapers_.empty() ? -1 : static_cast<int>(longest));
        if (items[0].revents != 0) return;
        auto item = items.begin() + 2;
        std::erase_if(scrapers_, [&](scraper& each) {
            const bool ready = (item++)->revents != 0;
            return clock::now() >= each.end || (ready && !serve(each));
        });
        if (items[1].revents != 0) accept_one();
    }
}

void http_endpoint::accept_one() {
    descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0 && errno != EAGAIN) std::this_thread::sleep_for(pause_without_descriptors);
    if (socket.get() < 0) return;
    if (scrapers_.size() == most_connections) scrapers_.pop_front();
    scrapers_.push_back({std::move(socket)});
}

/// False: it has its answer, or is gone.
bool http_endpoint::serve(scraper& one) const {
    if (one.answer.empty()) {
        std::array<char, 1024> piece{};
        const ssize_t got = ::recv(one.socket.get(), piece.data(), piece.size(), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got <= 0) return false;
        one.request.append(piece.data(), static_cast<std::size_t>(got));
        if (one.request.find("\r\n\r\n") == std::string::npos) return one.request.size() < longest_request;
        try {
            one.answer = answer_to(one.request);
        } catch (const std::exception&) {  // without memory, say
            return false;
        }
    }
    const ssize_t put = ::send(one.socket.get(), one.answer.data(), one.answer.size(), MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    one.answer.erase(0, static_cast<std::size_t>(put));
    return !one.answer.empty();
}

std::string http_endpoint::answer_to(std::string_view request) const {
    const std::string_view target = request.substr(0, request.find_first_of("? \r", std::strlen("GET ")));
    std::string body;
    if (target == "GET /metrics") body = metrics();
    if (target == "GET /healthz") body = "# HELP accel_up The process answers.\n# TYPE accel_up gauge\naccel_up 1\n";
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        target == "GET /metrics" || target == "GET /healthz" ? "200 OK" : "404 Not Found", body.size(), body);
}

/// What the context and the program have counted.
std::string http_endpoint::metrics() const {
    metrics_snapshot all = ctx_.metrics();
    if (more_) std::ranges::move(more_(), std::back_inserter(all.families));
    return prometheus_text(all);
}

}  // namespace

result<std::unique_ptr<metrics_endpoint>> metrics_endpoint::open(const context& ctx, const std::string& at,
                                                                 more_metrics more) {
    auto where = read_address(at);
    if (!where) return where.error();
    descriptor listening = listen_on(*where);
    if (listening.get() < 0)
        return error{
            status::system_error, errno,
            fmt::format("cannot listen on {} for scrapes; give an address of this machine and a free port", at)};
    std::string address = fmt::format("{}:{}", at.substr(0, at.rfind(':')), port_of(listening.get()));
    descriptor ended(::eventfd(0, EFD_CLOEXEC));
    try {
        if (ended.get() >= 0)
            return std::unique_ptr<metrics_endpoint>(std::make_unique<http_endpoint>(
                ctx, std::move(listening), std::move(ended), std::move(address), std::move(more)));
    } catch (const std::system_error&) {  // no thread
    }
    return error{status::system_error, errno,
                 "scrapes need a thread and two descriptors, which the OS refuses (ulimit -u, ulimit -n)"};
}

}  // namespace accel::report
