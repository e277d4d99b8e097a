// SPDX-License-Identifier: Apache-2.0
// What attacks on a server cost its honest clients: their calls beside an attacker, as a share of those while the same
// attacker, just as busy, attacks another server that nobody uses. On a machine that does nothing else:
// `./run bench attacks`. Usage:
//   attack_bench [SECONDS [ROUNDS [NAME]]]      NAME: only this attack
//   attack_bench attack NAME HOST PORT FOLDER   the attacker, with the keys in FOLDER, until it is killed
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
    std::vector<double> connects_ms;
    std::string trouble;
};

template <class Value>
Value middle(std::vector<Value> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// A server that lets in whoever has the keys in its folder.
class attacked_server {
  public:
    explicit attacked_server(const std::vector<std::string>& limits) {
        folder_.make("other");
        folder_.authorize({"client", "other"});
        const security_options security = folder_.server();
        server_ = std::make_unique<victim>(fmt::format("{}?key_file={}&authorized_keys={}", listen_uri("tcp"),
                                                       security.key_file, security.authorized_keys),
                                           limits, log_.fd());
    }
    [[nodiscard]] std::string uri() const { return server_->uri(); }
    [[nodiscard]] double processor_time() const { return hostile::processor_time(server_->pid()); }
    [[nodiscard]] channel_options options() const {
        channel_options out;
        out.security = keys_in(folder_.file(""), "client");
        return out;
    }
    [[nodiscard]] helper attack(const std::string& name) const {
        const target at = server_->where();
        return helper({"attack", name, at.host, std::to_string(at.port), folder_.file("")});
    }

  private:
    key_folder folder_;
    log_file log_;
    std::unique_ptr<victim> server_;
};

/// The honest clients of a server.
class crowd {
  public:
    explicit crowd(const attacked_server& of) : of_(of) {
        for (int i = 0; i < honest_clients; ++i)
            clients_.push_back(std::make_unique<good_client>(of.uri(), of.options()));
    }
    [[nodiscard]] figures measure(std::chrono::nanoseconds time) const {
        figures out;
        const std::uint64_t before = calls();
        const auto start = core::now();
        while (core::now() - start < time) {
            const auto begun = core::now();
            auto ctx = context::open({.log = log_level::off});
            const auto made = ctx ? channel::connect(*ctx, of_.uri(), of_.options()) : result<channel>(ctx.error());
            if (!made) out.trouble = made.error().message;
            out.connects_ms.push_back(std::chrono::duration<double, std::milli>(core::now() - begun).count());
            std::this_thread::sleep_for(pause_of_newcomers);
        }
        out.calls_a_second =
            static_cast<double>(calls() - before) / std::chrono::duration<double>(core::now() - start).count();
        for (const auto& each : clients_)
            if (!each->trouble().empty()) out.trouble = each->trouble();
        return out;
    }

  private:
    [[nodiscard]] std::uint64_t calls() const {
        std::uint64_t sum = 0;
        for (const auto& each : clients_) sum += each->calls();
        return sum;
    }
    const attacked_server& of_;
    std::vector<std::unique_ptr<good_client>> clients_;
};

/// The two attacks take turns, so that what else the machine does counts for both.
void compare(const plan& which, std::chrono::nanoseconds time, int rounds) {
    const attacked_server used(which.limits), unused(which.limits);
    const crowd honest(used);
    std::vector<double> shares, calls, connects, processors;
    std::string trouble;
    const auto attack = [&](const attacked_server& whom) {
        helper attacker = whom.attack(which.name);
        std::this_thread::sleep_for(time / 4);
        const double before = unused.processor_time();
        const auto start = core::now();
        const figures out = honest.measure(time);
        const double seconds = std::chrono::duration<double>(core::now() - start).count();
        const double by_server = (unused.processor_time() - before) / seconds;
        const double by_attacker = attacker.end();
        if (&whom == &unused) processors.push_back(by_attacker + by_server);
        if (trouble.empty()) trouble = out.trouble;
        std::this_thread::sleep_for(500ms);
        return out;
    };
    for (int i = 0; i < rounds; ++i) {
        const figures beside = attack(unused);
        const figures under = attack(used);
        shares.push_back(100 * under.calls_a_second / std::max(1.0, beside.calls_a_second));
        calls.push_back(beside.calls_a_second);
        connects.insert(connects.end(), under.connects_ms.begin(), under.connects_ms.end());
    }
    fmt::print("| {} | {:.2f} | {:.0f} | {:.0f} % | {:.1f} ms | {:.0f} ms |{}\n", which.what, middle(processors),
               middle(calls), middle(shares), middle(connects), *std::max_element(connects.begin(), connects.end()),
               trouble.empty() ? "" : " " + trouble);
    std::fflush(stdout);
}

[[noreturn]] void attack_until_killed(const std::vector<std::string>& arguments) {
    const auto found =
        std::find_if(plans().begin(), plans().end(), [&](const plan& each) { return each.name == arguments.at(1); });
    if (found == plans().end()) throw std::runtime_error("no such attack");
    ::setpriority(PRIO_PROCESS, 0, 19);  // attackers are on machines of their own: here they get what others leave
    const target at{arguments.at(2), static_cast<std::uint16_t>(std::stoul(arguments.at(3)))};
    const std::string& folder = arguments.at(4);
    const siege attacked(found->make(loaded(folder, "stranger"), loaded(folder, "other")), at, found->threads);
    for (;;) ::pause();
}

int run(const std::vector<std::string>& arguments) {
    if (!arguments.empty() && arguments[0] == "attack") attack_until_killed(arguments);
    const auto time = std::chrono::seconds{arguments.empty() ? 3 : std::stoi(arguments[0])};
    const int rounds = arguments.size() > 1 ? std::stoi(arguments[1]) : 5;
    fmt::print("{} honest clients call each millisecond, over tcp with keys; a newcomer connects each {} ms\n\n",
               honest_clients, pause_of_newcomers / 1ms);
    fmt::print(
        "| attack | processors it keeps busy | calls a second beside it | under it | newcomers, median | longest |\n"
        "| --- | --- | --- | --- | --- | --- |\n");
    for (const plan& each : plans())
        if (arguments.size() < 3 || arguments[2] == each.name) compare(each, time, rounds);
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
