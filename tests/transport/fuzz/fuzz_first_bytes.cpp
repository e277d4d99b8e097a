// SPDX-License-Identifier: Apache-2.0
// What arrives on a server's port before it is known who speaks: TLS handshakes that a man in the middle
// cuts, changes and delays, greetings and preambles in pieces, plain bytes where keys are asked for. Byte 0:
// who the client is; byte 1: what it is for. OpenSSL itself is not instrumented; the code around it is.
#include "control_server_view.hpp"
#include "core/control/data_preamble.hpp"
#include "core/log.hpp"
#include "core/tls/tls_stream.hpp"
#include "fake_clock.hpp"
#include "fuzz_target.hpp"
#include "key_ring.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <openssl/err.h>
#include <sys/socket.h>

namespace {

using namespace accel;
using namespace accel::core;
using namespace std::chrono_literals;
using tests::keys;
using tests::require;

using byte_queue = std::vector<std::byte>;

class fuzzed_host : public session_host {
  public:
    result<session_grant> open_session(const session_request& request, const client_identity& client) override {
        require(!may_enter.empty() && client.name == may_enter, "only clients that are authorised open sessions");
        session_grant grant;
        grant.session_id = ++opened;
        grant.granted = request.wanted;
        return grant;
    }
    void close_session(std::uint64_t, status) noexcept override { require(++closed <= opened, "once each"); }
    void cancel(std::uint64_t id, std::span<const call_id>) noexcept override {
        require(id <= opened, "only calls of sessions that were opened are cancelled");
    }
    std::vector<std::string> offers() const override { return {"tcp"}; }
    result<std::uint32_t> find_target(std::string_view) const override {
        return error{status::not_found, 0, "no such target"};
    }
    target_page list_targets(std::string_view) const override { return {}; }
    health_state check_health(std::string_view) const noexcept override { return health_state::serving; }
    result<void> take_connection(data_connection& made, const client_identity& client) override {
        require(made.tls == nullptr || !may_enter.empty(), "only clients that are authorised connect");
        require(made.tls == nullptr || made.tls->carries(data_protocol), "a control connection carries no data");
        require(client.name == (made.tls ? may_enter : ""), "a client is who it says it is");
        if (made.session_id != 1) return error{status::unauthorized, 0, "no such session"};
        answer_data(made, status::ok, {});
        taken.push_back(std::move(made));
        return {};
    }
    std::optional<session_token> token_of(std::uint64_t id) const override {
        return id == 1 ? std::optional(session_token{}) : std::nullopt;
    }
    std::string may_enter;  ///< the name of the client, if it may
    std::uint64_t opened = 0;
    std::uint64_t closed = 0;
    std::vector<data_connection> taken;
};

/// Two ends of a connection.
struct wire {
    wire() {
        std::array<int, 2> made{};
        require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.data()) == 0,
                "there are sockets");
        near = unique_fd(made[0]);
        far = unique_fd(made[1]);
    }
    unique_fd near;
    unique_fd far;
};

void read_all(int from, byte_queue& into) {
    std::array<std::byte, 4096> some;
    for (ssize_t got = 0; (got = ::recv(from, some.data(), some.size(), MSG_DONTWAIT)) > 0;)
        into.insert(into.end(), some.begin(), some.begin() + got);
}

void write_some(int to, byte_queue& from, std::size_t most) {
    if (from.empty() || most == 0) return;
    const ssize_t put = ::send(to, from.data(), std::min(most, from.size()), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put > 0) from.erase(from.begin(), from.begin() + put);
}

class meeting {
  public:
    explicit meeting(tests::input_reader& input) : input_(input) {
        keys().authorize(true);
        const std::uint8_t who = input_.byte() % 4;
        const std::uint8_t what = input_.byte();
        for_data_ = (what & 1) != 0;
        stranger_ = who == 2;
        if (!stranger_) host_.may_enter = keys().client_name;
        write_script((what & 2) != 0, (what & 4) != 0);
        server_ = std::make_unique<control_server::impl>(listener{}, unique_fd(::epoll_create1(EPOLL_CLOEXEC)),
                                                         keys().server, 2s, host_, control_limits{});
        server_->adopt(std::move(server_wire_.near), "10.0.0.1");
        if (who == 3) return;  // plain bytes
        auto made = tls_stream::connect(keys().credentials_of(stranger_), client_wire_.near.get(), "server",
                                        (what & 8) != 0 ? control_protocol
                                        : for_data_     ? data_protocol
                                                        : control_protocol);
        require(made.ok(), "a client can begin");
        client_.emplace(std::move(*made));
        clean_ = clean_ && !stranger_ && (!for_data_ || (what & 8) == 0);
    }

    void run() {
        for (int step = 0; step < 60 && !input_.empty(); ++step) act(input_.byte() % 14);
        end();
    }

  private:
    /// What the client has to say: a greeting and two questions, or a preamble.
    void write_script(bool excess, bool wrong) {
        const auto add = [this](std::span<const std::byte> bytes) {
            script_.insert(script_.end(), bytes.begin(), bytes.end());
        };
        const auto add_frame = [&add](const control_message& message) {
            const auto bytes = encode_control(message);
            const auto length = static_cast<std::uint32_t>(bytes.size());
            add(std::as_bytes(std::span(&length, 1)));
            add(bytes);
        };
        if (for_data_) {
            data_preamble shown;
            shown.session_id = wrong ? 2 : 1;
            add(std::as_bytes(std::span(&shown, 1)));
            if (excess) add(std::as_bytes(std::span(&shown, 1)));
            clean_ = !excess && !wrong;
            return;
        }
        add(std::as_bytes(std::span(control_greeting)));
        hello wish;
        wish.request.scheme = "tcp";
        wish.request.wanted = {1, 1, 1};
        wish.request.peer_timeout = 24h;
        if (excess) add_frame({1, wish});
        add_frame({2, query{}});
        if (wrong) add(std::as_bytes(std::span("\0\0\0\0", 4)));
        clean_ = !wrong;
    }

    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                for (int i = 0; i < 6; ++i) exchange();
                return;
            case 2:
                read_all(client_wire_.far.get(), to_server_);
                return write_some(server_wire_.far.get(), to_server_, input_.byte());
            case 3:
                return exchange();
            case 4:
                return change(to_server_);
            case 5:
                return change(to_client_);
            case 6: {
                const auto bytes = std::as_bytes(input_.bytes(input_.byte()));
                to_server_.insert(to_server_.end(), bytes.begin(), bytes.end());
                clean_ = clean_ && bytes.empty();
                return;
            }
            case 7:
            case 8:
                return say(1U + input_.byte() % 100U);
            case 9:
                return shake();
            case 10:
                clean_ = false;
                ::shutdown(server_wire_.far.get(), SHUT_WR);
                return;
            case 11:
                return pass(input_.byte());
            case 12:
                // Whoever shares the thread may leave one.
                ERR_raise(ERR_LIB_USER, 1);
                return;
            default:
                if (input_.byte() < 0xf0) return round(0ms);
                keys().authorize(false);
                clean_ = false;
                if (stranger_) host_.may_enter = keys().stranger_name;
                return server_->progress(0ms);
        }
    }

    /// A byte is different, or the rest is lost, or comes twice.
    void change(byte_queue& which) {
        if (which.empty()) return;
        clean_ = false;
        const std::size_t at = (input_.byte() * 256U + input_.byte()) % which.size();
        const std::uint8_t how = input_.byte();
        const auto place = which.begin() + static_cast<std::ptrdiff_t>(at);
        if (how == 0) {
            which.erase(place, which.end());
        } else if (how == 1) {
            const byte_queue again(place, which.end());
            which.insert(which.end(), again.begin(), again.end());
        } else {
            *place ^= static_cast<std::byte>(how);
        }
    }

    void shake() {
        if (!client_ || shaken_ || broken_) return;
        const tls_outcome outcome = client_->handshake();
        shaken_ = outcome == tls_outcome::done;
        note(outcome);
        require(!shaken_ || client_->peer_name().starts_with("ed25519:"), "a server has shown its key");
    }
    /// The next part of what there is to say, as one record.
    void say(std::size_t count) {
        const std::size_t part = std::min(count, script_.size());
        const auto bytes = std::span(script_).first(part);
        std::size_t sent = 0;
        if (!client_) {
            to_server_.insert(to_server_.end(), bytes.begin(), bytes.end());
            sent = part;
        } else if (shaken_ && !broken_ && part > 0) {
            note(client_->write(bytes, sent));
        }
        script_.erase(script_.begin(), script_.begin() + static_cast<std::ptrdiff_t>(sent));
    }
    void listen() {
        if (!client_) {
            answer_.insert(answer_.end(), to_client_.begin(), to_client_.end());
            to_client_.clear();
            return;
        }
        for (bool more = shaken_ && !broken_; more;) {
            std::array<std::byte, 4096> some;
            std::size_t count = 0;
            const tls_outcome outcome = client_->read(some, count);
            require(count <= some.size() && (outcome == tls_outcome::done) == (count > 0), "bytes come or not");
            note(outcome);
            answer_.insert(answer_.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
            more = outcome == tls_outcome::done;
        }
    }
    void note(tls_outcome outcome) {
        broken_ = broken_ || outcome == tls_outcome::failed || outcome == tls_outcome::closed;
        if (outcome == tls_outcome::failed) require(!client_->failure().empty(), "a failure has a reason");
    }

    /// Whatever waits goes on its way, both ways.
    void exchange() {
        shake();
        read_all(client_wire_.far.get(), to_server_);
        write_some(server_wire_.far.get(), to_server_, to_server_.size());
        round(0ms);
        read_all(server_wire_.far.get(), to_client_);
        if (client_) write_some(client_wire_.far.get(), to_client_, to_client_.size());
        listen();
    }
    void round(nanoseconds longest) {
        server_->progress(longest);
        while (control_server_view::open_next(*server_)) {
        }
        control_server_view::check(*server_);
    }
    void pass(std::uint8_t choice) {
        constexpr std::array<nanoseconds, 4> times{1ms, 100ms, 2s, 4s};
        const nanoseconds until = now() + times[choice % times.size()];
        passed_ += times[choice % times.size()];
        clean_ = clean_ && passed_ < 1s;
        const nanoseconds start = now();
        for (int i = 0; i < 20 && now() < until; ++i) round(until - now());
        require(now() - start >= 1ms, "the server sleeps while nothing comes");
    }

    /// The rest is said at once. Whoever was let in and spoke well has an answer; nobody else was served.
    void end() {
        for (int i = 0; i < 6; ++i) exchange();
        for (int i = 0; i < 200 && !script_.empty() && clean_; ++i) say(1U + input_.byte() % 100U);
        // A server reads a record a round.
        for (int i = 0; i < 6 || (i < 300 && clean_ && !served()); ++i) exchange();
        const bool plain_control = !client_ && !for_data_;
        if (clean_ && !plain_control) require(served(), "who has the keys and keeps the rules is served");
        if (host_.may_enter.empty() || plain_control)
            require(host_.opened == 0 && host_.taken.empty(), "who has no keys is not served");
        if (clean_ && plain_control) require(!answer_.empty(), "but told");
        for (auto& fd : {&server_wire_.far, &client_wire_.far}) fd->reset();
        for (int i = 0; i < 100 && !control_server_view::empty(*server_); ++i) round(1min);
        require(control_server_view::empty(*server_), "nothing stays behind");
        require(host_.opened == host_.closed, "every session is closed");
    }
    [[nodiscard]] bool served() const {
        if (for_data_) return host_.taken.size() == 1 && answer_.size() == data_answer_head_bytes;
        return shaken_ && !answer_.empty();
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    fuzzed_host host_;
    wire server_wire_;
    wire client_wire_;
    byte_queue to_server_;
    byte_queue to_client_;
    byte_queue script_;
    byte_queue answer_;
    std::unique_ptr<control_server::impl> server_;
    std::optional<tls_stream> client_;
    nanoseconds passed_{};
    bool for_data_ = false;
    bool stranger_ = false;
    bool shaken_ = false;
    bool broken_ = false;
    bool clean_ = true;  ///< nobody has broken a rule, or time-outs
};

/// Preambles and their answers, without a connection.
void read_pieces(std::span<const std::uint8_t> input) {
    const auto bytes = std::as_bytes(input);
    std::string why;
    const auto shown = read_data_preamble(bytes, why);
    require(!shown || (shown->version == protocol_version && why.empty()), "a preamble is whole");
    require(shown || bytes.size() < sizeof(data_preamble) || !why.empty(), "or there is a reason");
    if (bytes.size() < data_answer_head_bytes) return;
    const std::size_t length = data_answer_bytes(bytes.first<data_answer_head_bytes>());
    require(length <= max_data_answer_bytes, "an answer has its bound");
    if (length == 0 || length > bytes.size()) return;
    const auto answer = decode_data_answer(bytes.first(length));
    if (answer) return;
    require(answer.error().code != status::ok && !answer.error().message.empty(), "a refusal is one");
    const std::string& text = answer.error().message;
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    require(printable, "it can be logged");
    const auto again = encode_data_answer(answer.error().code, text);
    require(data_answer_bytes(std::span(again).first<data_answer_head_bytes>()) == again.size(),
            "what is sent can be read");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    logger::set_level(log_level::off);
    tests::input_reader input(data, size);
    if (size > 0 && data[0] >= 0xf0) {
        read_pieces(input.rest().subspan(1));
        return 0;
    }
    meeting(input).run();
    ERR_clear_error();
    return 0;
}
