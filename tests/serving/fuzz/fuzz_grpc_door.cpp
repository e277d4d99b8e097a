// SPDX-License-Identifier: Apache-2.0
// A connection to the gRPC door. The first byte says whether it begins as HTTP/2 does; steps follow: frames whose
// lengths are right or wrong, calls, gRPC's messages in pieces, and plain bytes.
#include "door_ground.hpp"
#include "fuzz_target.hpp"
#include "serving/doors/clients/infer_talk.hpp"
#include "serving/doors/clients/line.hpp"
#include "serving/doors/grpc/door/grpc_door.hpp"

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
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

namespace clients = accel::examples::serving::doors::clients;
using accel::tests::require;

constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::array<std::string_view, 8> paths{"/inference.GRPCInferenceService/ModelInfer",
                                                "/inference.GRPCInferenceService/ModelStreamInfer",
                                                "/inference.GRPCInferenceService/ModelMetadata",
                                                "/inference.GRPCInferenceService/ServerReady",
                                                "/grpc.health.v1.Health/Check",
                                                "/grpc.health.v1.Health/Watch",
                                                "/inference.GRPCInferenceService/Nothing",
                                                ""};

/// A door in a thread of its own; gRPC has further ones.
class ground {
  public:
    ground() : door_(base_.loop, base_.bound(), base_.models(), accel::tests::patient_settings(), {}) {
        require(door_.start().ok(), "the door opens");
        where_ = door_.endpoint().substr(door_.endpoint().find("//") + 2);
        thread_ = std::thread([this] { base_.loop.run(); });
        honest_.emplace(clients::line::connect(where_).value());
        ask_honestly();
    }
    /// Another client is served, and nothing is left of this one. The door looks for closed connections now and then.
    void check() {
        ask_honestly();
        require(until([this] { return base_.is_at_rest(door_.metrics()); }), "calls end with their connection");
        const bool looks = ++checks_ % 128 == 1;
        if (looks) require(until([this] { return door_.metrics().open_connections == 1; }), "connections end");
    }
    [[nodiscard]] int connect() { return base_.connect_to(where_); }

  private:
    template <class Condition>
    [[nodiscard]] static bool until(Condition holds) {
        const auto end = std::chrono::steady_clock::now() + accel::tests::door_patience;
        while (!holds()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
        return true;
    }
    void ask_honestly() {
        const std::array<float, 2> asked{1, 3};
        const std::array<float, 2> wanted{2, 6};
        talk_->ask(std::as_bytes(std::span{asked}));
        require(go_on(*honest_, *talk_, accel::tests::door_patience, [this] { return talk_->ended(); }),
                "an honest client is answered");
        const std::string_view bytes{reinterpret_cast<const char*>(wanted.data()), sizeof wanted};
        require(talk_->elements() == bytes, "an honest client gets its answer");
    }

    accel::tests::door_ground base_{1};
    accel::examples::serving::doors::grpc_door door_;
    std::string where_;
    std::thread thread_;
    std::optional<clients::line> honest_;
    std::unique_ptr<clients::infer_talk> talk_ = clients::grpc_talk({"twice", 2});
    std::uint64_t checks_ = 0;
};

/// Writes steps as frames.
class writer {
  public:
    explicit writer(accel::tests::input_reader from) : from_(from) {
        if (from_.byte() % 4 != 0) out_ = preface;
        if (!out_.empty()) frame(4, 0, 0, {}, 0);
    }
    std::string take() {
        while (!from_.empty()) step();
        return std::move(out_);
    }

  private:
    void step() {
        const std::uint8_t what = from_.byte();
        const std::uint8_t flags = from_.byte();
        const std::uint32_t stream = from_.byte() % 16;
        const std::uint8_t path = what % 8 < 2 ? from_.byte() : std::uint8_t{0};
        const auto type = static_cast<std::uint8_t>(what % 8 < 4 ? 0 : from_.byte() % 12);
        const std::uint8_t lie = what % 8 == 5 ? from_.byte() : std::uint8_t{0};
        switch (what % 8) {
            case 0:
                return frame(1, flags, stream, call(path) + text(), 0);
            case 1:
                return frame(1, flags | 4, stream | 1, call(path), 0);
            case 2:
                return frame(0, flags, stream | 1, message(text()), 0);
            case 3:
                return frame(0, flags, stream | 1, text(), 0);
            case 6:
                out_ += text();
                return;
            case 7:
                return frame(0, flags, stream | 1, odd_message(type, text()), 0);
            default:
                return frame(type, flags, stream, text(), lie);
        }
    }
    std::string text() {
        const auto bytes = from_.bytes(from_.byte());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    /// `lie`: how much longer than it is the frame says it is.
    void frame(std::uint8_t type, int flags, std::uint32_t stream, std::string_view payload, std::uint32_t lie) {
        number(payload.size() + lie, 3);
        out_ += static_cast<char>(type);
        out_ += static_cast<char>(flags);
        number(stream, 4);
        out_ += payload;
    }
    void number(std::uint64_t value, int bytes) {
        while (bytes-- > 0) out_ += static_cast<char>(value >> (8 * bytes));
    }
    static void field(std::string& to, std::string_view name, std::string_view value) {
        to += '\0';  // a literal that the table does not keep
        for (const std::string_view each : {name, value}) (to += static_cast<char>(each.size())) += each;
    }
    static std::string call(std::uint8_t path) {
        std::string out;
        field(out, ":method", "POST");
        field(out, ":scheme", "http");
        field(out, ":path", paths[path % paths.size()]);
        field(out, ":authority", "localhost");
        field(out, "te", "trailers");
        field(out, "content-type", "application/grpc");
        return out;
    }
    static std::string message(const std::string& content) {
        return std::string(4, '\0') + static_cast<char>(content.size()) + content;
    }
    /// Compressed or not, or what nobody knows; the rest of it may follow in another frame.
    static std::string odd_message(std::uint8_t coding, const std::string& content) {
        std::string out = message(content);
        out[0] = static_cast<char>(coding % 3);
        out[3] = static_cast<char>(coding / 3);
        return out;
    }

    accel::tests::input_reader from_;
    std::string out_;
};

class client {
  public:
    explicit client(int fd) : fd_(fd) {}
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    ~client() { ::close(fd_); }

    /// Reads meanwhile, because the door may wait for that.
    void send(std::string_view bytes) {
        while (!bytes.empty() && wait(POLLIN | POLLOUT)) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN) return;
            if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
            if (receive()) return;
        }
    }
    void end() {
        ::shutdown(fd_, SHUT_WR);
        while (!receive()) require(wait(POLLIN), "the door closes after its client");
    }

  private:
    /// True: that was all.
    [[nodiscard]] bool receive() {
        std::array<char, 4096> part;
        ssize_t count = 0;
        while ((count = ::recv(fd_, part.data(), part.size(), MSG_DONTWAIT)) > 0) take(part.data(), count);
        return count == 0 || errno != EAGAIN;
    }
    void take(const char* bytes, ssize_t count) {
        got_.append(bytes, static_cast<std::size_t>(count));
        constexpr std::size_t head = 9;
        while (got_.size() >= head) {
            const auto at = [this](std::size_t i) { return static_cast<std::uint8_t>(got_[i]); };
            const std::size_t length = (std::size_t{at(0)} << 16) + (std::size_t{at(1)} << 8) + at(2);
            require(length <= 16'384 && at(3) < 10, "what the door says is HTTP/2");
            if (got_.size() < head + length) return;
            got_.erase(0, head + length);
        }
    }
    [[nodiscard]] bool wait(short events) const {
        pollfd one{fd_, events, 0};
        constexpr std::chrono::milliseconds patience = accel::tests::door_patience;
        int ready = 0;
        do ready = ::poll(&one, 1, static_cast<int>(patience.count()));
        while (ready < 0 && errno == EINTR);  // by libFuzzer's clock
        return ready > 0;
    }

    const int fd_;
    std::string got_;
};

}  // namespace

/// Threads of gRPC hold memory at any time.
extern "C" int __lsan_is_turned_off() {  // NOLINT(bugprone-reserved-identifier)
    return 1;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static ground& at = *new ground;
    client one{at.connect()};
    one.send(writer({data, size}).take());
    one.end();
    at.check();
    return 0;
}
