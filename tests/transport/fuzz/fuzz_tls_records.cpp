// SPDX-License-Identifier: Apache-2.0
// Both ends of both planes against a peer that was let in and owns its keys: it cuts what it says into TLS records of
// any size, with padding, empty records, alerts, changes of keys and records that cannot be. Byte 0: who reads; byte
// 1: the room for each read of data.
#include "core/log.hpp"
#include "record_forge.hpp"
#include "record_victims.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include <openssl/err.h>
#include <sys/socket.h>

namespace {

using namespace accel;
using tests::bytes;
using tests::record_forge;
using tests::require;

constexpr std::uint8_t alert = 21;
constexpr std::uint8_t handshake = 22;
constexpr std::uint8_t data = 23;
constexpr std::size_t max_said = 40'000;

std::unique_ptr<tests::record_victim> choose(tests::input_reader& input) {
    const std::uint8_t who = input.byte() % 4;
    const std::uint8_t room = input.byte();
    if (who < 2) return std::make_unique<tests::data_victim>(who == 0, room * std::size_t{room});
    if (who == 2) return std::make_unique<tests::control_server_victim>();
    return std::make_unique<tests::control_client_victim>();
}

class forger {
  public:
    explicit forger(tests::input_reader& input) : input_(input), victim_(choose(input)), own_(meet()), forge_(own_) {}

    void run() {
        for (int step = 0; step < 100 && !input_.empty(); ++step) act(input_.byte());
        end();
    }

  private:
    core::tls_stream meet() {
        tests::keys().authorize(true);
        core::tls_stream made = victim_->meet();
        record_forge::watch(made);
        for (int i = 0; i < 50; ++i) {
            if (made.handshake() == core::tls_outcome::done) return made;
            victim_->round();
        }
        require(false, "the handshake succeeds");
        return made;
    }

    void act(std::uint8_t what) {
        switch (what % 16) {
            case 0:
            case 1:
                return say(1U + input_.byte());
            case 2:
                return say(1U + (input_.byte() * 256U + input_.byte()) % record_forge::most_content);
            case 3:
                for (int count = input_.byte(); count > 0; --count) say(1);
                return;
            case 4:
                for (int count = input_.byte() % 40; count > 0; --count) say(0);
                return;
            case 5:
                return say(input_.byte(), (input_.byte() * 256U + input_.byte()) % 16'000U);
            case 6:
                return warn(input_.byte(), input_.byte());
            case 7:
                return renew(input_.byte());
            case 8:
                return say_other(input_.byte());
            case 9:
                return spoil(input_.byte());
            case 10:
                return exceed();
            case 11:
                return add_raw();
            case 12:
                return push(1U + input_.byte());
            default:
                push(output_.size());
                return round();
        }
    }

    /// The next bytes of what there is to say.
    void say(std::size_t count, std::size_t padding = 0) {
        if (said_.size() + cut_size_ > max_said) return;
        while (backlog_.size() < count) tests::add(backlog_, victim_->more_to_say(static_cast<std::uint8_t>(count)));
        send(std::span(backlog_).first(count), padding);
        backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    void send(std::span<const std::byte> content, std::size_t padding) {
        empty_ = content.empty() ? empty_ + 1 : 0;
        if (empty_ > 32) over_ = true;
        if (over_)
            cut_size_ += content.size();
        else
            tests::add(said_, content);
        put(forge_.seal(data, content, padding));
    }
    void put(const bytes& record) { tests::add(output_, record); }

    /// Only one alert says something else than the end, whatever its level; some of them in a row are one too many.
    void warn(std::uint8_t level, std::uint8_t why) {
        constexpr std::uint8_t user_canceled = 90;
        put(forge_.seal(alert, std::array{std::byte{level}, std::byte{why}}));
        served_ = false;
        over_ = over_ || why != user_canceled;
        empty_ = 0;
    }
    void renew(std::uint8_t request) {
        put(forge_.seal(handshake,
                        std::array{std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{request}}));
        forge_.renew();
        break_rules();
    }
    /// Any other type; of a handshake message perhaps only a part.
    void say_other(std::uint8_t type) {
        if (type == data) type = handshake;
        put(forge_.seal(type, std::as_bytes(input_.bytes(input_.byte()))));
        over_ = true;
        served_ = false;
    }
    void spoil(std::uint8_t at) {
        bytes record = forge_.seal(data, std::array{std::byte{1}});
        record[record_forge::header_bytes + at % (record.size() - record_forge::header_bytes)] ^= std::byte{1};
        put(record);
        break_rules();
    }
    void exceed() {
        put(forge_.seal(data, bytes(record_forge::most_content + 1)));
        break_rules();
    }
    void add_raw() {
        const auto raw = std::as_bytes(input_.bytes(input_.byte()));
        if (raw.empty()) return;
        output_.insert(output_.end(), raw.begin(), raw.end());
        over_ = true;
        served_ = false;  // what follows may be the rest of a record
    }
    void break_rules() {
        must_end_ = must_end_ || served_;
        over_ = true;
        served_ = false;
    }

    void push(std::size_t most) {
        if (output_.empty() || most == 0) return;
        const ssize_t sent =
            ::send(victim_->peer(), output_.data(), std::min(most, output_.size()), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) output_.erase(output_.begin(), output_.begin() + sent);
        gone_ = gone_ || (sent < 0 && errno == EPIPE);
    }
    void round() {
        victim_->round();
        std::array<std::byte, 4096> room;
        std::size_t count = 0;
        while (own_.read(room, count) == core::tls_outcome::done) victim_->hear(std::span(room).first(count));
        victim_->check(said_, false);
    }

    /// Who has kept the rules is served, and who has broken them has lost the connection.
    void end() {
        if (served_ && !over_) {
            tests::add(backlog_, victim_->last_to_say());
            for (std::size_t part = 1; part > 0;) {
                part = std::min(backlog_.size(), record_forge::most_content);
                if (part > 0) send(std::span(backlog_).first(part), 0);
                backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(part));
            }
        }
        const bool served = served_ && !over_;
        std::uint64_t before = 0;
        int rounds = 0;
        for (int idle = 0; idle < 10 && !victim_->ended(); ++idle) {
            require(++rounds < 1'000'000, "all is read some day");
            push(output_.size());
            round();
            if (before != victim_->progress() || (!output_.empty() && !gone_)) idle = 0;
            before = victim_->progress();
        }
        if (served) victim_->check(said_, true);
        require(!served || !victim_->ended(), "who keeps the rules stays");
        require(!must_end_ || victim_->ended(), "who breaks the rules goes");
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    std::unique_ptr<tests::record_victim> victim_;
    core::tls_stream own_;
    record_forge forge_;
    bytes backlog_;
    bytes said_;  ///< before a rule was broken
    bytes output_;
    std::size_t cut_size_ = 0;
    int empty_ = 0;          ///< records in a row
    bool over_ = false;      ///< what follows is not read
    bool served_ = true;     ///< no rule was broken
    bool must_end_ = false;  ///< one was broken that nobody forgives
    bool gone_ = false;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
    core::logger::set_level(log_level::off);
    tests::input_reader reader(input, size);
    forger(reader).run();
    ERR_clear_error();
    return 0;
}
