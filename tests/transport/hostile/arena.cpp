// SPDX-License-Identifier: Apache-2.0
#include "hostile/arena.hpp"

#include "sanitizers.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace accel::hostile {
namespace {

using tests::eventually;

context quiet_context() {
    auto opened = context::open({.log = log_level::off});
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(opened).value();
}

channel connected(context& ctx, const std::string& uri, const channel_options& options) {
    auto made = channel::connect(ctx, uri, options);
    if (!made) throw std::runtime_error("connect: " + made.error().message);
    return std::move(made).value();
}

std::string security_text(const security_options& security) {
    if (security.insecure) return "insecure=true";
    return "key_file=" + security.key_file + "&authorized_keys=" + security.authorized_keys;
}

double in_ms(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

std::string listen_uri(const std::string& scheme) {
    static std::atomic<int> number{0};
    if (scheme == "shm") return fmt::format("shm://hostile-{}-{}", ::getpid(), ++number);
    return fmt::format("{}://{}:0", scheme, tests::own_loopback());
}

bool sanitized() {
    return tests::thread_sanitizer || tests::address_sanitizer;
}

log_file::log_file() {
    path_ = (std::filesystem::temp_directory_path() / "accel_log_XXXXXX").string();
    fd_ = unique_fd(::mkostemp(path_.data(), O_CLOEXEC | O_APPEND));
    if (!fd_.open()) throw std::runtime_error("no file for the log");
}

log_file::~log_file() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

std::string log_file::text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool log_file::tells(const std::string& what, std::chrono::nanoseconds within) const {
    return eventually(
        patience(within), [&] { return text().find(what) != std::string::npos; }, 10ms);
}

victim::victim(const std::string& uri, const std::vector<std::string>& limits, int error_fd)
    : peer_process(
          ACCEL_HOSTILE_PEER,
          [&] {
              std::vector<std::string> all{"serve", uri};
              all.insert(all.end(), limits.begin(), limits.end());
              return all;
          }(),
          error_fd) {
    uri_ = line();
}

target victim::where() const {
    const auto host = uri_.find("://") + 3;
    if (uri_.starts_with("shm")) return {"@" + uri_.substr(host), 0};
    const auto port = uri_.rfind(':');
    return {uri_.substr(host, port - host), static_cast<std::uint16_t>(std::stoul(uri_.substr(port + 1)))};
}

bool victim::alive() const {
    std::ifstream file(fmt::format("/proc/{}/stat", pid()));
    std::string number, name, state;
    return file >> number >> name >> state && state != "Z";
}

std::size_t victim::descriptors() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid())))
        ++count;
    return count;
}

std::string victim::descriptors_as_text() const {
    std::string out;
    for (const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid()))) {
        std::error_code gone;
        out += fmt::format("\n{} {}", each.path().filename().string(),
                           std::filesystem::read_symlink(each.path(), gone).string());
    }
    return out;
}

std::size_t victim::resident_bytes() const {
    std::ifstream file(fmt::format("/proc/{}/statm", pid()));
    std::size_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

victim::counters victim::counts() {
    tell("counts");
    counters out;
    std::istringstream(line()) >> out.sessions >> out.lost >> out.requests >> out.memory_bytes;
    return out;
}

std::optional<std::chrono::nanoseconds> victim::terminate() {
    const auto start = core::now();
    signal(SIGTERM);
    try {
        if (join(patience(30s)) != 0) return std::nullopt;
    } catch (const std::exception&) {
        return std::nullopt;
    }
    return core::now() - start;
}

good_client::good_client(const std::string& uri, const channel_options& options)
    : context_(quiet_context()), channel_(connected(context_, uri, options)), thread_([this] { run(); }) {}

good_client::~good_client() {
    stop_.store(true);
    thread_.join();
}

std::string good_client::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

void good_client::run() {
    for (std::uint64_t number = 1; !stop_.load(); ++number) {
        while (resting_.load() && !stop_.load()) std::this_thread::sleep_for(1ms);
        const auto start = core::now();
        std::string wrong = call_once(number);
        longest_.store(std::max<std::int64_t>(longest_.load(), (core::now() - start).count()));
        if (wrong.empty()) {
            calls_.fetch_add(1);
            std::this_thread::sleep_for(1ms);
            continue;
        }
        const std::lock_guard lock(mutex_);
        trouble_ = std::move(wrong);
        return;
    }
}

std::string good_client::call_once(std::uint64_t number) {
    std::array<std::byte, 64> request{};
    std::memcpy(request.data(), &number, sizeof number);
    auto answered = channel_.call(request);
    if (!answered) return fmt::format("call {}: {} ({})", number, to_string(answered.code()), answered.error().message);
    if (!std::equal(request.begin(), request.end(), answered->response.begin(), answered->response.end()))
        return fmt::format("call {}: wrong bytes", number);
    return {};
}

siege::siege(const attack& what, const target& at, int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, what, at] { what(at, go_); });
}

siege::~siege() {
    go_.store(false);
    for (std::thread& each : threads_) each.join();
}

channel_options arena::client_options(const std::string& who) const {
    channel_options out;
    out.slots = 4;
    out.request_bytes = out.response_bytes = 4096;
    out.peer_timeout = patience(2s);
    out.connect_timeout = patience(5s);
    out.security = keyed() ? folder_.client(who) : core::testing::insecure();
    return out;
}

identity arena::client_keys(const std::string& who) const {
    auto loaded = core::load_client_security(client_options(who).security);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
}

std::string arena::server_uri(const std::string& options) const {
    const security_options security = keyed() ? folder_.server() : core::testing::insecure();
    return fmt::format("{}?{}&peer_timeout={}ms{}", listen_uri(scheme_), security_text(security), 2000 * time_factor(),
                       options);
}

void arena::open(const std::string& options, const std::vector<std::string>& limits) {
    server_ = std::make_unique<victim>(server_uri(options), limits, log_.fd());
    for (int i = 0; i < 2; ++i) clients_.push_back(std::make_unique<good_client>(server_->uri(), client_options()));
    expect_newcomer_served("before the attack");
    descriptors_ = server_->descriptors();
    resident_ = server_->resident_bytes();
}

void arena::endure(const attack& what, const siege_options& options) {
    {
        const siege attacked(what, server_->where(), options.threads);
        std::this_thread::sleep_for(options.lasts);
        expect_newcomer_served("under attack");
    }
    expect_unharmed();
}

void arena::endure_all(const std::vector<named_attack>& all) {
    open();
    for (const named_attack& each : all) {
        SCOPED_TRACE(each.name);
        endure(each.what, each.options);
        if (HasFatalFailure()) return;
    }
}

void arena::expect_unharmed() {
    ASSERT_TRUE(server_->alive()) << log_.text();
    for (const auto& each : clients_) {
        EXPECT_EQ(each->trouble(), "");
        const std::uint64_t before = each->calls();
        EXPECT_TRUE(eventually(patience(3s), [&] { return each->calls() > before; })) << "it is not served";
        std::cout << fmt::format("longest call: {:.1f} ms\n", in_ms(each->longest_call()));
    }
    expect_newcomer_served("after the attack");
    const auto sessions_back = [this] { return server_->counts().sessions <= clients_.size(); };
    EXPECT_TRUE(eventually(patience(5s), sessions_back, 20ms)) << server_->counts().sessions;
    const auto descriptors_back = [this] { return server_->descriptors() <= descriptors_; };
    // Connections without a session may stay for 10 s.
    EXPECT_TRUE(eventually(patience(12s), descriptors_back, 20ms))
        << server_->descriptors() << ", before " << descriptors_ << server_->descriptors_as_text();
    const std::size_t resident = server_->resident_bytes();
    std::cout << fmt::format("memory: {} KiB, before {}\n", resident >> 10, resident_ >> 10);
    if (sanitized()) return;  // freed memory is kept back on purpose
    EXPECT_LT(resident, resident_ + resident_margin_);
}

/// A machine that is busy elsewhere may hold one up; a server that keeps clients out does so each time.
void arena::expect_newcomer_served(const std::string& when) {
    for (int i = 0; i < 3; ++i)
        if (serves_newcomer(when)) return;
    ADD_FAILURE() << "no newcomer is served " << when << '\n' << log_.text().substr(0, 2000);
}

bool arena::serves_newcomer(const std::string& when) {
    const auto start = core::now();
    context ctx = quiet_context();
    auto made = channel::connect(ctx, server_->uri(), client_options());
    const std::array<std::byte, 16> bytes{};
    const bool served = made && made->call(bytes).ok();
    std::cout << fmt::format("a new client {}: {:.1f} ms{}\n", when, in_ms(core::now() - start),
                             made ? "" : ", " + made.error().message);
    return served;
}

}  // namespace accel::hostile
