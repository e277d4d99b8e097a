// SPDX-License-Identifier: Apache-2.0
// A whole connection to the HTTP door: requests, one after the other, and how they end. Each input is sent twice, in
// one piece and cut anywhere, and has the same answers both times. Two bytes say how the connection ends, and where it
// is cut; the rest is what its client sends.
#include "door_ground.hpp"
#include "fuzz_target.hpp"
#include "serving/doors/clients/infer_talk.hpp"
#include "serving/doors/clients/line.hpp"
#include "serving/doors/http/http_door.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <sys/socket.h>
#include <unistd.h>

namespace {

namespace http = boost::beast::http;
namespace clients = accel::examples::serving::doors::clients;
using accel::tests::require;

constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";

/// How a client ends its connection. All but `leaves` wait for all answers first.
enum class ending : std::uint8_t { says_all, closes, resets, leaves };

struct input {
    ending end = ending::says_all;
    std::uint8_t cuts = 0;
    std::span<const std::uint8_t> bytes;
};

/// What a client has got.
struct transcript {
    std::vector<unsigned> statuses;
    bool closed = false;  ///< by the door
    friend bool operator==(const transcript&, const transcript&) = default;
};

class ground {
  public:
    ground() : door_(base_.loop, base_.bound(), base_.models(), accel::tests::patient_settings(), {}) {
        require(door_.start().ok(), "the door opens");
        where_ = door_.endpoint().substr(door_.endpoint().find("//") + 2);
        honest_.emplace(clients::line::connect(where_).value());
        ask_honestly();
    }

    [[nodiscard]] accel::examples::serving::doors::http_door& door() { return door_; }
    void settle() { base_.settle(); }
    /// False: it has not come.
    template <class Condition>
    [[nodiscard]] bool until(Condition holds) {
        const auto end = std::chrono::steady_clock::now() + accel::tests::door_patience;
        for (settle(); !holds(); settle()) {
            if (std::chrono::steady_clock::now() > end) return false;
            base_.loop.run_one_for(std::chrono::milliseconds{1});
        }
        return true;
    }
    [[nodiscard]] std::uint64_t open() const { return door_.metrics().open_connections.load(); }
    /// Another client is served, and nothing is left of this one.
    void check() {
        require(until([this] { return open() == 1; }), "a connection that its client has closed ends");
        require(base_.is_at_rest(door_.metrics()), "a connection that has ended has nothing of the door");
        ask_honestly();
    }
    [[nodiscard]] int connect() { return base_.connect_to(where_); }

  private:
    void ask_honestly() {
        const std::array<float, 2> asked{1, 3};
        talk_->ask(std::as_bytes(std::span{asked}));
        const auto goes_on = [this] {
            std::size_t all = SIZE_MAX;
            return honest_->write(*talk_, all) && (honest_->read(*talk_) || talk_->ended());
        };
        require(until([&] { return !goes_on() || talk_->ended(); }), "an honest client is answered");
        const std::array<float, 2> wanted{2, 6};
        const std::string_view bytes{reinterpret_cast<const char*>(wanted.data()), sizeof wanted};
        require(talk_->ended() && talk_->elements() == bytes, "an honest client gets its answer");
    }

    accel::tests::door_ground base_{0};
    accel::examples::serving::doors::http_door door_;
    std::string where_;
    std::optional<clients::line> honest_;
    std::unique_ptr<clients::infer_talk> talk_ = clients::http_talk({"twice", 2});
};

/// Takes answers apart, as they come.
class answers {
    using parser = http::response_parser<http::string_body>;

  public:
    explicit answers(std::string_view asked) : asked_head_(asked.find("HEAD") != asked.npos) {}
    void take(std::string_view more) { text_ += more; }
    /// The door says nothing more for now.
    void read() {
        while (!text_.empty() && take_one()) {
        }
    }
    /// The door has closed the connection.
    void end() {
        read();
        if (text_.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream")) text_.clear();
        require(text_.empty(), "an answer is whole");
    }
    [[nodiscard]] const std::vector<unsigned>& statuses() const { return statuses_; }

  private:
    /// The answer to HEAD tells the length of what it leaves out; no body of this door begins as an answer does.
    [[nodiscard]] bool take_one() {
        if (text_.starts_with(go_on)) return drop(go_on.size());
        parser alone;
        alone.skip(true);
        const std::size_t head = put(alone);
        if (!alone.is_header_done()) return false;
        const bool nothing = text_.size() == head;
        if (asked_head_ && (nothing || text_.substr(head).starts_with("HTTP/1.1 "))) return took(alone.get(), head);
        parser whole;
        const std::size_t taken = put(whole);
        return whole.is_done() && took(whole.get(), taken);
    }
    std::size_t put(parser& to) const {
        boost::system::error_code failed;
        to.eager(true);
        const std::size_t taken = to.put(boost::asio::buffer(text_), failed);
        require(!failed || failed == http::error::need_more, "what the door says is HTTP/1.1");
        return taken;
    }
    [[nodiscard]] bool took(const http::response<http::string_body>& one, std::size_t bytes) {
        require(one.version() == 11 && !one.reason().empty(), "an answer is of HTTP/1.1");
        const bool sized = one.count("Content-Length") + one.count("Transfer-Encoding") == 1;
        require(sized || one["Content-Type"].starts_with("text/event-stream"), "an answer has one length");
        if (!sized) return false;  // to a client of HTTP/1.0: until its connection ends
        statuses_.push_back(one.result_int());
        return drop(bytes);
    }
    bool drop(std::size_t bytes) {
        text_.erase(0, bytes);
        return true;
    }

    bool asked_head_;
    std::string text_;
    std::vector<unsigned> statuses_;
};

class client {
  public:
    client(ground& at, const input& from)
        : at_(at), from_(from), got_(text_of(from.bytes)), before_(at.door().counts().requests), fd_(at.connect()) {}
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    ~client() { ::close(fd_); }

    /// `cuts`: where; 0: nowhere.
    transcript run(std::uint8_t cuts) {
        send_all(cuts);
        if (from_.end == ending::leaves) return {};
        require(at_.until([this] { return has_all(); }), "each request that the door counts is answered");
        transcript out{got_.statuses(), closed_};
        if (from_.end == ending::resets) reset();
        if (from_.end != ending::says_all) return out;
        ::shutdown(fd_, SHUT_WR);
        require(at_.until([this] { return receive(), closed_; }), "the door closes after its client");
        got_.end();
        return out;
    }

  private:
    static std::string_view text_of(std::span<const std::uint8_t> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    void send_all(std::uint8_t cuts) {
        std::uint32_t random = cuts;
        for (auto left = from_.bytes; !left.empty() && !closed_;) {
            random = random * 1'664'525 + 1'013'904'223;
            const std::size_t most = cuts == 0 ? left.size() : 1 + (random >> 24) % (cuts < 128 ? 4 : 64);
            left = left.subspan(send(left.first(std::min(most, left.size()))));
            at_.settle();
            receive();
        }
    }
    std::size_t send(std::span<const std::uint8_t> some) {
        const ssize_t sent = ::send(fd_, some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) closed_ = true;
        return sent < 0 ? 0 : static_cast<std::size_t>(sent);
    }
    void receive() {
        std::array<char, 4096> part;
        ssize_t count = 0;
        while ((count = ::recv(fd_, part.data(), part.size(), MSG_DONTWAIT)) > 0)
            got_.take({part.data(), static_cast<std::size_t>(count)});
        closed_ = closed_ || count == 0 || errno != EAGAIN;
    }
    /// Those of a client of HTTP/1.0 may end with the connection.
    [[nodiscard]] bool has_all() {
        receive();
        got_.read();
        return closed_ || got_.statuses().size() == at_.door().counts().requests - before_;
    }
    void reset() const {
        const linger none{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }

    ground& at_;
    const input& from_;
    answers got_;
    const std::uint64_t before_;
    const int fd_;
    bool closed_ = false;
};

transcript talk(ground& at, const input& from, std::uint8_t cuts) {
    transcript out = client(at, from).run(cuts);
    at.check();
    return out;
}

input input_of(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader reader{data, size};
    const auto end = static_cast<ending>(reader.byte() % 4);
    const std::uint8_t cuts = reader.byte();
    return {end, cuts, reader.rest()};
}

bool ends_with_refused_header(const transcript& one) {
    return one.closed && !one.statuses.empty() && (one.statuses.back() == 400 || one.statuses.back() == 431);
}

/// A header that is wrong as far as it is there is refused at once, or once the rest of it is there; one that is too
/// long as well for either.
bool are_alike(const transcript& whole, transcript cut) {
    if (whole == cut) return true;
    if (!ends_with_refused_header(whole)) return false;
    if (ends_with_refused_header(cut))
        cut.statuses.pop_back();
    else if (cut.closed)
        return false;
    return std::ranges::equal(std::span{whole.statuses}.first(whole.statuses.size() - 1), cut.statuses);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static ground& at = *new ground;
    const input one = input_of(data, size);
    bool alike = false;
    // Where the kernel was late with a piece, the end may have come before the answer.
    for (int attempt = 0; attempt < 3 && !alike; ++attempt) {
        const transcript whole = talk(at, one, 0);
        alike = are_alike(whole, talk(at, one, one.cuts | 1));
    }
    require(alike, "the answers do not depend on where the requests are cut");
    return 0;
}
