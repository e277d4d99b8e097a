// SPDX-License-Identifier: Apache-2.0
// A control server whose rounds the input runs: peers that connect, speak, stay silent and go, over socket
// pairs; a host that grants and refuses; time. Byte 0: limits and time-outs; byte 1: how it ends.
#include "control_server_view.hpp"
#include "core/control/control_message.hpp"
#include "core/control/data_preamble.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "fuzz_target.hpp"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace {

using namespace accel;
using namespace accel::core;
using namespace std::chrono_literals;
using tests::require;

constexpr std::size_t max_peers = 5;
constexpr std::size_t max_connects = 12;
constexpr std::size_t max_pending = 64 << 10;
constexpr std::size_t max_frames = 300;  // so that a sequence takes a millisecond
constexpr std::array addresses{"10.0.0.1", "10.0.0.2", "10.0.0.3"};

/// What the host knows of a session.
struct host_session {
    std::string address;
    bool closed = false;
    bool ended_here = false;  ///< by the host
};

class fuzzed_host : public session_host {
  public:
    fuzzed_host(tests::input_reader& input, const std::map<std::string, bool>& said_goodbye,
                const std::map<std::string, bool>& said_cancel)
        : input_(input), said_goodbye_(said_goodbye), said_cancel_(said_cancel) {}

    result<session_grant> open_session(const session_request& request, const client_identity& client) override {
        const std::uint8_t choice = input_.byte();
        if (choice >= 0xc0) return error{status::overloaded, 0, std::string(choice - 0xc0U, 'x')};
        session_grant grant;
        grant.session_id = sessions.size() + 1;
        grant.granted = request.wanted;
        grant.description = request.description;
        sessions[grant.session_id] = {client.address, false, false};
        if (choice >= 0xa0) end(grant.session_id, status::overloaded);
        return grant;
    }
    void close_session(std::uint64_t id, status why) noexcept override {
        const auto found = sessions.find(id);
        require(found != sessions.end(), "only sessions that were opened are closed");
        host_session& which = found->second;
        require(!which.closed, "a session is closed once");
        which.closed = true;
        require(why != status::ok, "for a reason");
        const auto said = said_goodbye_.find(which.address);
        require(why != status::closed || said->second, "no client closes the session of another");
    }
    void cancel(std::uint64_t id, std::span<const call_id> calls) noexcept override {
        const auto found = sessions.find(id);
        require(found != sessions.end() && !found->second.closed, "only calls of open sessions are cancelled");
        require(said_cancel_.at(found->second.address), "no client cancels the calls of another");
        require(!calls.empty() && calls.size() <= max_cancels, "some calls, and not too many");
        for (const call_id& each : calls) require(each.slot < max_slots && each.generation != 0, "and sound ones");
    }
    std::vector<std::string> offers() const override {
        return many_offers ? std::vector<std::string>(16, std::string(96, 'o')) : std::vector{std::string("tcp")};
    }
    result<std::uint32_t> find_target(std::string_view name) const override {
        require(is_target_name(name), "the host is asked for names only");
        if (name == "model") return target_of(name).number;
        return error{status::not_found, 0, "no such target"};
    }
    health_state check_health(std::string_view name) const noexcept override {
        require(name.empty() || is_target_name(name), "the host is asked for names only");
        return health_state::serving;
    }
    target_page list_targets(std::string_view after) const override {
        require(after.empty() || is_target_name(after), "the host is asked for names only");
        return {{std::string(after) + "!"}, true};
    }
    result<void> take_connection(data_connection& made, const client_identity&) override {
        require(made.socket.open(), "a data connection comes with its socket");
        const auto found = sessions.find(made.session_id);
        if (found == sessions.end()) return error{status::unauthorized, 0, "no such session"};
        taken_.push_back(std::move(made));
        return {};
    }
    std::optional<session_token> token_of(std::uint64_t id) const override {
        return sessions.find(id) != sessions.end() ? std::optional(session_token{}) : std::nullopt;
    }
    void end(std::uint64_t id, status why) {
        sessions[id].ended_here = true;
        server->end_session(id, why);
    }

    control_server::impl* server = nullptr;
    std::map<std::uint64_t, host_session> sessions;
    bool many_offers = false;

  private:
    tests::input_reader& input_;
    const std::map<std::string, bool>& said_goodbye_;
    const std::map<std::string, bool>& said_cancel_;
    std::vector<data_connection> taken_;
};

/// A client in the fuzzer's hands.
struct peer {
    peer(unique_fd socket, std::string from) : stream(std::move(socket)), address(std::move(from)) {}

    void flush() {
        if (half_closed || pending.empty()) return;
        const ssize_t put = ::send(stream.fd(), pending.data(), pending.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put > 0) pending.erase(pending.begin(), pending.begin() + put);
    }

    control_stream stream;
    std::string address;
    std::vector<std::byte> pending;
    std::set<std::uint64_t> sessions;  ///< that it was told of
    bool spoke = false;
    bool greeted = false;  ///< what it gets is messages
    bool reads = true;
    bool half_closed = false;
    std::uint64_t requests = 0;
};

class serving {
  public:
    explicit serving(tests::input_reader& input) : input_(input) {
        for (const char* each : addresses) said_goodbye_[each] = said_cancel_[each] = false;
        const std::uint8_t config = input_.byte();
        ending_ = input_.byte();
        control_limits limits;
        limits.max_connections = (config & 4) != 0 ? 3 : 100;
        limits.max_client_connections = (config & 8) != 0 ? 1 : 100;
        limits.max_half_open = (config & 16) != 0 ? 2 : 100;
        host_.many_offers = (config & 32) != 0;
        endless_ = (config & 3) == 3;
        const nanoseconds peer_timeout = std::array<nanoseconds, 4>{20ms, 100ms, 400ms, never}[config & 3U];
        server_ = std::make_unique<control_server::impl>(listener{}, unique_fd(::epoll_create1(EPOLL_CLOEXEC)),
                                                         insecure(), peer_timeout, host_, limits);
        host_.server = server_.get();
    }

    void run() {
        for (int step = 0; step < 80 && !input_.empty(); ++step) {
            const std::uint8_t what = input_.byte();
            act(what % 16);
            if ((what & 0x80U) == 0) round(0ms);
        }
        end();
    }

  private:
    static const std::shared_ptr<live_security>& insecure() {
        static const std::shared_ptr<live_security> made = [] {
            security_options options;
            options.insecure = true;
            return *live_security::of_server(options);
        }();
        return made;
    }

    void act(unsigned what) {
        if (what == 0) return connect();
        if (what == 12) return pass(input_.byte());
        if (what == 13) return open_sessions(1U + input_.byte() % 80U);
        if (what == 14) return end_session();
        if (peers_.empty()) connect();
        if (peers_.empty()) return;
        speak(*peers_[input_.byte() % peers_.size()], what);
    }

    void speak(peer& by, unsigned what) {
        switch (what) {
            case 1:
                return raw(by);
            case 2:
                return greet(by);
            case 3:
                return say_hello(by);
            case 4:
                return say(by, {0, heartbeat{{time(), time(), time()}}});
            case 5:
                return say_goodbye(by);
            case 6:
                return ask(by, input_.byte());
            case 7:
                return say_what_servers_say(by);
            case 8:
                return say_malformed(by);
            case 9:
                by.half_closed = true;
                ::shutdown(by.stream.fd(), SHUT_WR);
                return;
            case 10:
                return leave(by);
            case 11:
                by.reads = !by.reads;
                return;
            default:
                return attach(by);
        }
    }

    void connect() {
        if (peers_.size() == max_peers || connects_ == max_connects) return;
        ++connects_;
        std::array<int, 2> ends{};
        require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
                "there are sockets");
        const int least = 1;
        ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
        const std::string address = addresses[input_.byte() % addresses.size()];
        peers_.push_back(std::make_unique<peer>(unique_fd(ends[1]), address));
        server_->adopt(unique_fd(ends[0]), address);
    }
    void leave(peer& by) {
        std::erase_if(peers_, [&by](const auto& each) { return each.get() == &by; });
    }

    void put(peer& by, std::span<const std::byte> bytes) {
        if (by.pending.size() + bytes.size() > max_pending) return;
        by.pending.insert(by.pending.end(), bytes.begin(), bytes.end());
        by.spoke = true;
        by.flush();
    }
    void raw(peer& by) {
        const auto bytes = std::as_bytes(input_.bytes(input_.byte()));
        if (bytes.empty()) return;
        said_goodbye_[by.address] = said_cancel_[by.address] = true;  // perhaps
        put(by, bytes);
    }
    void greet(peer& by) {
        by.greeted = by.greeted || !by.spoke;
        put(by, std::as_bytes(std::span(control_greeting)));
    }
    void frame(peer& by, std::span<const std::byte> bytes) {
        if (++frames_ > max_frames) return;
        if (!by.spoke) greet(by);
        const auto length = static_cast<std::uint32_t>(bytes.size());
        std::vector<std::byte> whole(sizeof length + bytes.size());
        std::memcpy(whole.data(), &length, sizeof length);
        std::copy(bytes.begin(), bytes.end(), whole.begin() + sizeof length);
        put(by, whole);
    }
    void say(peer& by, const control_message& message) { frame(by, encode_control(message)); }

    session_request wish() {
        const std::uint8_t choice = input_.byte();
        session_request request;
        request.scheme = "tcp";
        request.wanted = {1, choice, 100};
        request.peer_timeout = std::array<nanoseconds, 4>{20ms, 100ms, 2s, 24h}[choice & 3U];
        request.version = static_cast<std::uint16_t>(protocol_version + (choice >> 6U));
        request.description.resize((choice & 4) != 0 ? 512 : 4);
        return request;
    }
    void say_hello(peer& by) {
        const control_message message{++by.requests, hello{wish(), time()}};
        const std::uint8_t times = input_.byte();
        for (int i = 0; i <= (times > 0xf0 ? 70 : 0); ++i) say(by, message);
    }
    nanoseconds time() {
        return std::array<nanoseconds, 5>{0ns, 1ns, now(), nanoseconds{(std::int64_t{1} << 62U) - 1},
                                          now() + 1h}[input_.byte() % 5];
    }
    /// Any session, one that does not exist, or all of the connection's.
    std::uint64_t some_session() {
        const std::uint8_t choice = input_.byte();
        return choice == 0xff ? 0 : choice % (host_.sessions.size() + 2);
    }
    void say_goodbye(peer& by) {
        const std::uint64_t id = some_session();
        const auto found = host_.sessions.find(id);
        // A session that does not exist yet may exist when the server reads this.
        if (id == 0 || found == host_.sessions.end() || found->second.address == by.address)
            said_goodbye_[by.address] = true;
        say(by, {0, goodbye{id, (id & 1U) != 0 ? status::peer_lost : status::closed}});
    }
    void cancel(peer& by) {
        const std::uint64_t id = some_session();
        const auto found = host_.sessions.find(id);
        if (found == host_.sessions.end() || found->second.address == by.address) said_cancel_[by.address] = true;
        const std::uint8_t choice = input_.byte();
        cancel_calls message{id, std::vector<call_id>(1U + choice % max_cancels, {choice, 1})};
        if (choice >= 0xf0) message.calls.back() = {choice % 2 == 0 ? max_slots : 0U, 0};
        say(by, {0, std::move(message)});
    }
    void ask(peer& by, unsigned times) {
        if (times % 8 == 6) return cancel(by);
        const unsigned more = times >= 0xf0 ? times : times % 4;
        for (unsigned i = 0; i <= more; ++i)
            if (times % 8 == 5)
                say(by, {++by.requests, find_target{i % 2 == 0 ? "model" : "other"}});
            else if (times % 8 == 4)
                say(by, {++by.requests, list_targets{i % 2 == 0 ? "" : std::string(i % 70, 'm')}});
            else if (times % 8 == 7)
                say(by, {++by.requests, check_health{i % 2 == 0 ? "" : "model"}});
            else
                say(by, {++by.requests, query{}});
    }
    void say_what_servers_say(peer& by) {
        switch (input_.byte() % 3) {
            case 0: {
                session_grant grant;
                grant.session_id = 1;
                grant.granted = {1, 1, 1};
                grant.peer_timeout = 1s;
                return say(by, {1, welcome{grant, {}, {}}});
            }
            case 1:
                return say(by, {0, refused{status::overloaded, "no"}});
            default:
                return say(by, {1, offers{{"tcp"}}});
        }
    }
    /// A message of which one byte is different, or which is cut.
    void say_malformed(peer& by) {
        auto bytes = encode_control({++by.requests, hello{wish(), now()}});
        bytes[input_.byte() % bytes.size()] ^= static_cast<std::byte>(input_.byte());
        // A different kind makes it anything.
        said_goodbye_[by.address] = said_cancel_[by.address] = true;
        frame(by, std::span(bytes).first(bytes.size() - std::min<std::size_t>(input_.byte() % 32, bytes.size() - 1)));
    }
    void attach(peer& by) {
        data_preamble shown;
        shown.session_id = some_session();
        shown.version = static_cast<std::uint8_t>(shown.version + input_.byte() / 200);
        put(by, std::as_bytes(std::span(&shown, 1)));
    }

    void open_sessions(unsigned count) {
        while (count-- > 0 && control_server_view::open_next(*server_)) {
        }
    }
    void end_session() {
        const std::uint64_t id = some_session();
        if (host_.sessions.contains(id))
            host_.end(id, status::out_of_memory);
        else
            server_->end_session(1'000'000, status::closed);  // nobody's
        if (id % 8 == 7) server_->drain();
    }

    void round(nanoseconds longest) {
        for (auto& each : peers_) each->flush();
        server_->progress(longest);
        for (auto& each : peers_)
            if (each->reads && each->greeted) listen(*each);
        check();
    }
    void pass(std::uint8_t choice) {
        constexpr std::array<nanoseconds, 8> times{1ms, 3ms, 20ms, 100ms, 1s, 3s, 11s, 61s};
        const nanoseconds until = now() + times[choice % times.size()];
        for (int i = 0; i < 8 && now() < until; ++i) round(until - now());
        // The rest passes while the server's thread does not run.
        if (now() < until) clock_.pass(until - now());
    }

    /// Reads what the server has said.
    void listen(peer& to) {
        for (auto read = to.stream.fill();; read = to.stream.fill()) {
            while (const auto bytes = to.stream.next_message()) {
                auto message = decode_control(*bytes);
                require(message.ok(), "a server's messages are well-formed");
                hear(to, message->body);
            }
            require(!to.stream.violated(), "and so are its frames");
            if (read != tls_outcome::done) return;
        }
    }
    template <class Body>
    void hear(peer& to, const Body& body) {
        if (const auto* opened = std::get_if<welcome>(&body)) {
            const auto found = host_.sessions.find(opened->grant.session_id);
            require(found != host_.sessions.end() && found->second.address == to.address,
                    "a session goes to the client that asked for it");
            require(to.sessions.insert(opened->grant.session_id).second, "once");
        }
        if (const auto* over = std::get_if<goodbye>(&body))
            require(over->session_id == 0 || to.sessions.erase(over->session_id) == 1,
                    "a client hears of the end of its own sessions, once");
    }

    void check() {
        control_server_view::check(*server_);
        if (!control_server_view::idle(*server_)) return;
        for (const auto& [id, each] : host_.sessions) {
            if (each.closed || each.ended_here) continue;
            require(control_server_view::owns(*server_, id), "an open session has a connection");
        }
    }

    /// All go, or fall silent; then nothing stays behind.
    void end() {
        if (ending_ % 4 == 3) return;
        if (ending_ % 4 == 0 || endless_) peers_.clear();
        const auto over = [this] {
            return control_server_view::empty(*server_) && control_server_view::idle(*server_);
        };
        for (int i = 0; i < 4'000 && !over(); ++i) {
            open_sessions(~0U);
            round(1min);
        }
        require(over(), "what is gone or silent is forgotten soon");
        for (const auto& [id, each] : host_.sessions)
            require(each.closed || each.ended_here, "every session that was opened is closed");
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    std::map<std::string, bool> said_goodbye_;  ///< an address could have
    std::map<std::string, bool> said_cancel_;   ///< likewise
    fuzzed_host host_{input_, said_goodbye_, said_cancel_};
    std::unique_ptr<control_server::impl> server_;
    std::vector<std::unique_ptr<peer>> peers_;
    std::size_t connects_ = 0;
    std::size_t frames_ = 0;
    std::uint8_t ending_ = 0;
    bool endless_ = false;  ///< silence has no end
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    logger::set_level(log_level::off);
    tests::input_reader input(data, size);
    serving(input).run();
    return 0;
}
