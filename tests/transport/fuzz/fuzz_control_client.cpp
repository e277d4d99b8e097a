// SPDX-License-Identifier: Apache-2.0
// A client's control connection against a server in the fuzzer's hands, over a local socket: answers of any
// kind, at any time, in pieces, or none; connections that break. Byte 0: how many addresses the server has.
#include "core/control/client_connection.hpp"
#include "core/control/data_preamble.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace accel::core {

/// What a connection holds.
struct client_connection_view {
    static bool asks(const client_connection& on, const waiting_call& call) {
        return std::any_of(on.calls_.begin(), on.calls_.end(),
                           [&call](const auto& each) { return each.second.get() == &call; });
    }
    static bool has(const client_connection& on, const session_watch& watch) {
        return std::any_of(on.sessions_.begin(), on.sessions_.end(),
                           [&watch](const auto& each) { return each.second.watch.get() == &watch; });
    }
    static std::optional<waiting_call::answer> take_answer(waiting_call& of) {
        return std::exchange(of.answer_, std::nullopt);
    }
    static void give_up(waiting_call& of) { of.abandoned_ = true; }
};

}  // namespace accel::core

namespace {

using namespace accel;
using namespace accel::core;
using namespace std::chrono_literals;
using tests::require;

constexpr std::size_t max_calls = 12;

/// Where the server listens; nothing in the file system.
socket_address local_address(const std::string& name) {
    socket_address out{};
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), to.sun_path + 1);
    std::memcpy(&out.storage, &to, sizeof to);
    out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return out;
}

/// One door for all inputs.
struct door {
    door() {
        const sockaddr* any = reinterpret_cast<const sockaddr*>(&address.storage);
        require(::bind(socket.get(), any, address.length) == 0 && ::listen(socket.get(), 64) == 0,
                "the server listens");
    }
    [[nodiscard]] unique_fd accept() const {
        return unique_fd(::accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
    std::string name = fmt::format("accel fuzz {}", ::getpid());
    socket_address address = local_address(name);
    socket_address nobody = local_address(name + " nobody");
    unique_fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
};

const door& the_door() {
    static const door made;
    return made;
}

struct fuzzed_call {
    std::shared_ptr<session_watch> watch;
    std::shared_ptr<waiting_call> call;
    std::uint64_t request = 0;
    std::uint64_t session = 0;  ///< that was granted
    bool answered = false;
    bool given_up = false;
    bool closed = false;  ///< by the caller
};

class asking {
  public:
    explicit asking(tests::input_reader& input) : input_(input) {
        server_address to{"server", 1, {the_door().address}, insecure()};
        const std::uint8_t config = input_.byte();
        if ((config & 1) != 0) to.addresses.insert(to.addresses.begin(), the_door().nobody);
        if ((config & 2) != 0) to.addresses.push_back(the_door().nobody);
        connection_ = std::make_unique<client_connection>(std::move(to), listening_);
    }
    ~asking() {
        connection_.reset();
        while (the_door().accept().open()) {
        }
    }
    asking(const asking&) = delete;
    asking& operator=(const asking&) = delete;

    void run() {
        for (int step = 0; step < 120 && !input_.empty() && !connection_->finished(); ++step) {
            const std::uint8_t what = input_.byte();
            act(what % 16);
            if ((what & 0x80U) == 0) round(0ms);
        }
        end();
    }

  private:
    static const std::shared_ptr<const security_identity>& insecure() {
        static const std::shared_ptr<const security_identity> made = [] {
            security_options options;
            options.insecure = true;
            return *load_client_security(options);
        }();
        return made;
    }

    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return ask(what == 0);
            case 2:
                return close_session();
            case 3:
                return pass(input_.byte());
            case 4:
            case 5:
                return say_welcome();
            case 6:
                return say({some_request(), refused{some_status(), "no"}});
            case 7:
                return say_answer();
            case 8:
                return say({0, heartbeat{clocks()}});
            case 9:
                return say_end(input_.byte());
            case 10:
                return put(std::as_bytes(input_.bytes(input_.byte())));
            case 11:
                return say_malformed();
            case 12:
                return server_.clear();
            case 13:
                if (!server_.empty()) ::shutdown(server_.back().get(), SHUT_WR);
                return;
            case 14:
                return give_up();
            default:
                return say({some_request(), query{}});
        }
    }

    void say_end(std::uint8_t choice) {
        if (choice >= 192) return say({0, going_away{}});
        say({0, goodbye{choice % 8U, some_status()}});
    }

    // The caller.
    void ask(bool for_session) {
        if (calls_.size() == max_calls || connection_->finished()) return;
        const std::uint8_t choice = input_.byte();
        const nanoseconds patience = std::array<nanoseconds, 4>{1ms, 100ms, 3s, never}[choice & 3U];
        fuzzed_call made;
        std::optional<session_request> wish;
        if (for_session) {
            wish.emplace();
            wish->scheme = "tcp";
            wish->wanted = {1, choice, 100};
            wish->peer_timeout = std::array<nanoseconds, 4>{1ms, 20ms, 2s, never}[(choice >> 2U) & 3U];
            wish->description.resize((choice & 16) != 0 ? 512 : 4);
            made.watch = std::make_shared<session_watch>();
        }
        const nanoseconds deadline = deadline_after(patience);
        const std::array<waiting_call::question, 4> questions{query{}, find_target{"model"}, list_targets{"b"},
                                                              check_health{"model"}};
        if (for_session)
            made.call = std::make_shared<waiting_call>(std::move(wish), made.watch, deadline);
        else
            made.call = std::make_shared<waiting_call>(questions.at((choice >> 2U) % 4), deadline);
        made.request = calls_.size() + 1;
        calls_.push_back(made);
        connection_->ask(made.call);
    }
    void close_session() {
        if (calls_.empty()) return;
        fuzzed_call& which = calls_[input_.byte() % calls_.size()];
        if (which.session == 0 || which.closed) return;
        const bool alive = client_connection_view::has(*connection_, *which.watch);
        require(connection_->close_session(which.session, which.watch.get()) == alive,
                "who is alive can be closed, and nobody else");
        which.closed = which.closed || alive;
    }
    void give_up() {
        if (calls_.empty()) return;
        fuzzed_call& which = calls_[input_.byte() % calls_.size()];
        if (which.answered) return;
        client_connection_view::give_up(*which.call);
        which.given_up = true;
    }

    // The server.
    void put(std::span<const std::byte> bytes) {
        if (server_.empty()) return;
        static_cast<void>(!::send(server_.back().get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    }
    void frame(std::span<const std::byte> bytes) {
        const auto length = static_cast<std::uint32_t>(bytes.size());
        put(std::as_bytes(std::span(&length, 1)));
        put(bytes);
    }
    void say(const control_message& message) { frame(encode_control(message)); }
    /// Offers, a state of health, targets after the name in the question or not, or a target: of that name, or of
    /// another.
    void say_answer() {
        const std::uint64_t request = some_request();
        const std::uint8_t choice = input_.byte();
        if (choice % 4 == 1) return say({request, target_found{target_of("model").number}});
        if (choice % 4 == 2) return say({request, target_found{choice}});
        if (choice % 8 == 3) return say({request, targets_listed{{{choice < 128 ? "a" : "c", "d"}, true}}});
        if (choice % 8 == 7) return say({request, health_checked{health_state::serving}});
        say({request, offers{{"tcp", "zmq"}}});
    }
    std::uint64_t some_request() { return input_.byte() % (calls_.size() + 2); }
    status some_status() { return static_cast<status>(1 + input_.byte() % (status_count - 1)); }
    nanoseconds time() {
        return std::array<nanoseconds, 6>{0ns,        1ns,        now(), nanoseconds{(std::int64_t{1} << 62U) - 1},
                                          now() + 1h, now() - 1ms}[input_.byte() % 6];
    }
    clock_stamps clocks() { return {time(), time(), time()}; }
    void say_welcome() {
        const std::uint64_t request = some_request();
        const std::uint8_t choice = input_.byte();
        welcome body;
        body.grant.session_id = 1 + input_.byte() % 8;
        body.grant.granted = {1, 1, 1};
        if (request >= 1 && request <= calls_.size() && calls_[request - 1].call->session && (choice & 1) == 0)
            body.grant.granted = calls_[request - 1].call->session->wanted;
        if ((choice & 4) != 0) body.boot = read_boot();
        body.grant.peer_timeout = std::array<nanoseconds, 4>{1ms, 20ms, 2s, 24h}[(choice >> 3U) & 3U];
        if ((choice & 32) != 0) body.clocks = clocks();
        say({request, body});
    }
    static const boot_identity& read_boot() {
        static const boot_identity own = read_boot_identity();
        return own;
    }
    void say_malformed() {
        welcome body;
        body.grant.session_id = 1;
        body.grant.granted = {1, 1, 1};
        body.grant.peer_timeout = 1s;
        auto bytes = encode_control({some_request(), body});
        bytes[input_.byte() % bytes.size()] ^= static_cast<std::byte>(input_.byte());
        bytes.resize(bytes.size() - std::min<std::size_t>(input_.byte() % 64, bytes.size() - 1));
        frame(bytes);
    }
    /// Takes connections, and what the client says on them.
    void serve() {
        for (unique_fd made = the_door().accept(); made.open(); made = the_door().accept())
            server_.push_back(std::move(made));
        for (const unique_fd& each : server_) {
            std::array<std::byte, 4096> ignored;
            while (::recv(each.get(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
            }
        }
    }

    /// A round of the client's thread, but without sleep. Returns when the next one is due.
    nanoseconds round(nanoseconds planned) {
        pollfd item = connection_->poll_item();
        if (item.fd >= 0) ::poll(&item, 1, 0);
        listening_.advance(now(), planned);
        connection_->progress(item.revents);
        const nanoseconds at = now();
        const nanoseconds next = connection_->run_timers();
        require(next > at, "the thread sleeps between two rounds");
        serve();
        for (fuzzed_call& each : calls_) check(each, at);
        return connection_->has_more() ? now() : next;
    }
    void pass(std::uint8_t choice) {
        constexpr std::array<nanoseconds, 8> times{1ms, 3ms, 20ms, 100ms, 1s, 3s, 11s, 61s};
        const nanoseconds until = now() + times[choice % times.size()];
        nanoseconds next{};
        for (int i = 0; i < 20 && now() < until; ++i) {
            const nanoseconds planned = std::clamp(next - now(), 0ns, until - now());
            if (!ready()) clock_.pass(planned);
            next = round(planned);
        }
        if (now() < until) clock_.pass(until - now());
    }
    [[nodiscard]] bool ready() const {
        pollfd item = connection_->poll_item();
        return item.fd >= 0 && ::poll(&item, 1, 0) > 0;
    }

    void check(fuzzed_call& each, nanoseconds at) {
        if (auto answer = client_connection_view::take_answer(*each.call)) {
            require(!each.answered && !each.given_up, "a question has one answer, if somebody waits");
            each.answered = true;
            if (const auto* grant = std::get_if<session_grant>(&*answer)) check_grant(each, *grant);
            const auto* number = std::get_if<std::uint32_t>(&*answer);
            const auto* wanted = each.call->asks<find_target>();
            const bool finds = wanted != nullptr && wanted->name == "model";
            require(number == nullptr || (finds && *number == target_of("model").number),
                    "a number is that of the name");
            require(!std::holds_alternative<std::vector<std::string>>(*answer) || each.call->asks<query>() != nullptr,
                    "only who asks for offers gets them");
            const auto* failure = std::get_if<error>(&*answer);
            require(failure == nullptr || failure->code != status::ok, "a refusal is one");
        }
        const bool asks = client_connection_view::asks(*connection_, *each.call);
        require(!asks || !each.answered, "what is answered is not asked any more");
        require(asks || each.answered || each.given_up, "no question is forgotten");
        require(!asks || each.call->deadline > at, "a deadline is kept");
        if (each.watch) check_watch(each);
    }
    static void check_grant(fuzzed_call& of, const session_grant& grant) {
        require(of.call->session.has_value(), "only who asks for a session gets one");
        require(grant.granted.request_bytes == of.call->session->wanted.request_bytes, "a grant is what was asked for");
        require(grant.session_id != 0, "it has a number");
        of.session = grant.session_id;
    }
    void check_watch(fuzzed_call& of) const {
        const status ended = of.watch->ended();
        require(static_cast<std::uint16_t>(ended) < status_count, "the end has a known reason");
        std::uint64_t times = 0;
        if (::read(of.watch->event_fd(), &times, sizeof times) > 0)
            signalled_.insert(signalled_.end(), times, of.watch.get());
        const auto count = std::count(signalled_.begin(), signalled_.end(), of.watch.get());
        const auto least = of.watch->good() ? 0 : 1;
        require(count >= least && count <= least + (ended != status::ok ? 1 : 0),
                "an end is told once, and a drain before it");
        const bool alive = client_connection_view::has(*connection_, *of.watch);
        require(!alive || (ended == status::ok && !of.closed), "a session that has ended is not alive");
        require(alive || of.session == 0 || of.closed || ended != status::ok, "who has lost it is told");
        const std::int64_t offset = of.watch->clock_offset_ns.load();
        require(offset > -(std::int64_t{1} << 62U) && offset < std::int64_t{1} << 62U, "clocks are finite");
    }

    /// The client goes: everything has an end.
    void end() {
        connection_->end();
        for (fuzzed_call& each : calls_) {
            check(each, nanoseconds{0});
            require(each.answered || each.given_up, "every question is answered in the end");
            require(each.session == 0 || each.closed || each.watch->ended() != status::ok, "every session ends");
        }
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    listening_clock listening_;
    std::vector<fuzzed_call> calls_;
    std::unique_ptr<client_connection> connection_;
    std::vector<unique_fd> server_;  ///< its ends
    mutable std::vector<const session_watch*> signalled_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    logger::set_level(log_level::off);
    tests::input_reader input(data, size);
    asking(input).run();
    return 0;
}
