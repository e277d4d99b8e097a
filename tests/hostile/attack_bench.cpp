// SPDX-License-Identifier: Apache-2.0
// What attacks on a server cost its honest clients: their calls beside an attacker, as a share of those beside a
// program that attacks nobody and is as busy as the attacker and what the attack makes the server do, with as many
// threads. On a machine that does nothing else: `./run bench attacks`. Usage:
//   attack_bench [SECONDS [ROUNDS]]
//   attack_bench attack NAME HOST PORT FOLDER   the attacker, with the keys in FOLDER, until it is killed
//   attack_bench busy PROCESSORS THREADS        keeps processors busy (0.5: half of one), until it is killed
#include "hostile/attacks.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::hostile {
namespace {

constexpr int honest_clients = 4;
constexpr auto pause_of_newcomers = 50ms;

struct plan {
    std::string name;
    std::string what;
    int threads;
    std::function<attack(const identity& stranger, const identity& client)> make;
    std::vector<std::string> limits{};
};

const std::vector<plan>& plans() {
    static const std::vector<plan> all{
        {"renew", "2,400 changes of TLS keys at once, 8 connections", 8,
         [](const auto&, const auto& client) { return renew_keys(stranger_address, client); }},
        {"drip", "1 MB in TLS records of one byte, 3 connections", 3,
         [](const auto&, const auto& client) { return drip_records(stranger_address, client); }},
        {"hellos", "600 connections full of hellos", 1,
         [](const auto&, const auto& client) { return ask_for_sessions(stranger_address, client, 600); }},
        {"everywhere", "strangers from 3,000 addresses, 1,000 a second", 1,
         [](const auto&, const auto&) { return come_from_everywhere(); }},
        {"handshakes", "handshakes with an unknown key, 32 at once", 1,
         [](const auto& stranger, const auto&) { return shake_hands(stranger_address, stranger, 32); }},
        {"questions", "control messages without end", 1,
         [](const auto&, const auto& client) {
             return flood(stranger_address, client, frame(control_message{1, core::query{}}));
         }},
        {"descriptors",
         "all descriptors of `ulimit -n 1024`",
         1,
         [](const auto&, const auto& client) { return hoard_sessions(stranger_address, client); },
         {"nofile=1024"}},
    };
    return all;
}

security_options keys_in(const std::string& folder, const std::string& who) {
    security_options out;
    out.key_file = folder + "/" + who + ".key";
    out.server_key = folder + "/server.pub";
    return out;
}

identity loaded(const std::string& folder, const std::string& who) {
    auto made = core::load_client_security(keys_in(folder, who));
    if (!made) throw std::runtime_error(made.error().message);
    return *made;
}

/// Another process of this program. Killed at the latest when this is destroyed.
class helper {
  public:
    explicit helper(std::vector<std::string> arguments) : start_(core::now()) {
        arguments.insert(arguments.begin(), "/proc/self/exe");
        std::vector<char*> argv;
        argv.reserve(arguments.size() + 1);
        for (std::string& each : arguments) argv.push_back(each.data());
        argv.push_back(nullptr);
        if (::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0)
            throw std::runtime_error("cannot start another process");
    }
    ~helper() { (void)end(); }
    helper(const helper&) = delete;
    helper& operator=(const helper&) = delete;

    /// How many processors it kept busy.
    double end() {
        if (pid_ <= 0) return 0;
        rusage used{};
        ::kill(pid_, SIGKILL);
        ::wait4(std::exchange(pid_, -1), nullptr, 0, &used);
        const auto seconds = [](const timeval& of) {
            return static_cast<double>(of.tv_sec) + static_cast<double>(of.tv_usec) / 1e6;
        };
        return (seconds(used.ru_utime) + seconds(used.ru_stime)) /
               std::chrono::duration<double>(core::now() - start_).count();
    }

  private:
    pid_t pid_ = -1;
    core::nanoseconds start_;
};

/// What a process has used of processors, in seconds.
double processor_time(pid_t of) {
    std::ifstream file(fmt::format("/proc/{}/stat", of));
    std::string all((std::istreambuf_iterator<char>(file)), {});
    std::istringstream fields(all.substr(all.rfind(')') + 1));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, kernel = 0;
    fields >> user >> kernel;
    return (user + kernel) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct figures {
    double calls_a_second = 0;
    double servers_processors = 0;
    std::vector<double> connects_ms;
    std::string trouble;
};

template <class Value>
Value middle(std::vector<Value> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// A server and its honest clients.
class scene {
  public:
    explicit scene(const std::vector<std::string>& limits) {
        folder_.make("other");
        folder_.authorize({"client", "other"});
        const security_options security = folder_.server();
        server_ = std::make_unique<victim>(fmt::format("{}?key_file={}&authorized_keys={}", listen_uri("tcp"),
                                                       security.key_file, security.authorized_keys),
                                           limits, log_.fd());
        for (int i = 0; i < honest_clients; ++i)
            clients_.push_back(std::make_unique<good_client>(server_->uri(), options()));
    }
    [[nodiscard]] std::vector<std::string> attack_arguments(const std::string& name) const {
        const target at = server_->where();
        return {"attack", name, at.host, std::to_string(at.port), folder_.file("")};
    }
    [[nodiscard]] figures measure(std::chrono::nanoseconds time) const {
        figures out;
        const std::uint64_t before = calls();
        const double used = processor_time(server_->pid());
        const auto start = core::now();
        while (core::now() - start < time) {
            const auto begun = core::now();
            auto ctx = context::open({.log = log_level::off});
            const auto made = ctx ? channel::connect(*ctx, server_->uri(), options()) : result<channel>(ctx.error());
            if (!made) out.trouble = made.error().message;
            out.connects_ms.push_back(std::chrono::duration<double, std::milli>(core::now() - begun).count());
            std::this_thread::sleep_for(pause_of_newcomers);
        }
        const double seconds = std::chrono::duration<double>(core::now() - start).count();
        out.calls_a_second = static_cast<double>(calls() - before) / seconds;
        out.servers_processors = (processor_time(server_->pid()) - used) / seconds;
        for (const auto& each : clients_)
            if (!each->trouble().empty()) out.trouble = each->trouble();
        return out;
    }

  private:
    [[nodiscard]] channel_options options() const {
        channel_options out;
        out.security = keys_in(folder_.file(""), "client");
        return out;
    }
    [[nodiscard]] std::uint64_t calls() const {
        std::uint64_t sum = 0;
        for (const auto& each : clients_) sum += each->calls();
        return sum;
    }
    key_folder folder_;
    log_file log_;
    std::unique_ptr<victim> server_;
    std::vector<std::unique_ptr<good_client>> clients_;
};

/// Attack and busy program take turns, so that what else the machine does counts for both.
void compare(const plan& which, std::chrono::nanoseconds time, int rounds) {
    const scene on(which.limits);
    const figures quiet = on.measure(time);
    std::vector<double> shares, calls, connects;
    double processors = 0;
    std::string trouble;
    for (int i = 0; i < rounds; ++i) {
        helper attacker(on.attack_arguments(which.name));
        std::this_thread::sleep_for(time / 4);
        const figures beside_attack = on.measure(time);
        const double for_calls =
            quiet.servers_processors * beside_attack.calls_a_second / std::max(1.0, quiet.calls_a_second);
        processors = attacker.end() + std::max(0.0, beside_attack.servers_processors - for_calls);
        std::this_thread::sleep_for(500ms);
        const helper busy({"busy", std::to_string(processors), std::to_string(which.threads + 1)});
        std::this_thread::sleep_for(time / 4);
        const figures beside_busy = on.measure(time);
        shares.push_back(100 * beside_attack.calls_a_second / std::max(1.0, beside_busy.calls_a_second));
        calls.push_back(beside_busy.calls_a_second);
        connects.insert(connects.end(), beside_attack.connects_ms.begin(), beside_attack.connects_ms.end());
        if (trouble.empty()) trouble = beside_attack.trouble.empty() ? beside_busy.trouble : beside_attack.trouble;
    }
    fmt::print("| {} | {:.2f} | {:.0f} | {:.0f} % | {:.1f} ms | {:.0f} ms |{}\n", which.what, processors, middle(calls),
               middle(shares), middle(connects), *std::max_element(connects.begin(), connects.end()),
               trouble.empty() ? "" : " " + trouble);
    std::fflush(stdout);
}

[[noreturn]] void attack_until_killed(const std::vector<std::string>& arguments) {
    const auto found =
        std::find_if(plans().begin(), plans().end(), [&](const plan& each) { return each.name == arguments.at(1); });
    if (found == plans().end()) throw std::runtime_error("no such attack");
    const target at{arguments.at(2), static_cast<std::uint16_t>(std::stoul(arguments.at(3)))};
    const std::string& folder = arguments.at(4);
    const siege attacked(found->make(loaded(folder, "stranger"), loaded(folder, "other")), at, found->threads);
    for (;;) ::pause();
}

[[noreturn]] void be_busy(double processors, int threads) {
    const auto busy = std::chrono::duration_cast<core::nanoseconds>(1ms * (processors / threads));
    for (int i = 0; i < threads; ++i) {
        std::thread([busy] {
            for (auto next = core::now();; next += 1ms) {
                while (core::now() < next + busy) {
                }
                std::this_thread::sleep_for(next + 1ms - core::now());
            }
        }).detach();
    }
    for (;;) ::pause();
}

/// Attackers are on machines of their own, so here they get the time that others leave.
void step_back() {
    ::setpriority(PRIO_PROCESS, 0, 19);
}

int run(const std::vector<std::string>& arguments) {
    if (!arguments.empty() && (arguments[0] == "attack" || arguments[0] == "busy")) step_back();
    if (!arguments.empty() && arguments[0] == "attack") attack_until_killed(arguments);
    if (arguments.size() == 3 && arguments[0] == "busy") be_busy(std::stod(arguments[1]), std::stoi(arguments[2]));
    const auto time = std::chrono::seconds{arguments.empty() ? 3 : std::stoi(arguments[0])};
    const int rounds = arguments.size() > 1 ? std::stoi(arguments[1]) : 5;
    fmt::print("{} honest clients call each millisecond, over tcp with keys; a newcomer connects each {} ms\n\n",
               honest_clients, pause_of_newcomers / 1ms);
    fmt::print(
        "| attack | processors it keeps busy | calls a second beside a busy program | beside the attack | newcomers, "
        "median | longest |\n| --- | --- | --- | --- | --- | --- |\n");
    for (const plan& each : plans()) compare(each, time, rounds);
    return 0;
}

}  // namespace
}  // namespace accel::hostile

int main(int argc, char** argv) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        return accel::hostile::run({argv + 1, argv + argc});
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "attack_bench: %s\n", failure.what());
        return 1;
    }
}
