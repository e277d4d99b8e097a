// SPDX-License-Identifier: Apache-2.0
#include "client.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

namespace accel::examples::serving::doors::crowd {
namespace {

constexpr std::uint32_t largest_whole = 1U << 23;  // twice as much is a float as well

const clients::vector_model model{.name = "double", .size = 8};

}  // namespace

client::client(std::uint32_t number, protocol over, const target& to, tally& seen)
    : number_(number), over_(over), to_(to), seen_(seen), chance_(number + 1), due_(clock::now()) {
    rest();
}

bool client::wants_to_write() const {
    return talk_ != nullptr && !talk_->unsent().empty() && may_send_ > 0;
}

bool client::connect() {
    line_ = clients::line::connect(over_ == protocol::http ? to_.http : to_.grpc);
    if (!line_) return false;
    talk_ = over_ == protocol::http ? clients::http_talk(model) : clients::grpc_talk(model);
    ++seen_.connects;
    return true;
}

void client::begin() {
    if (!line_ && !connect()) return fail("no socket");
    ++requests_;
    for (std::size_t i = 0; i < input_.size(); ++i)
        input_[i] = static_cast<float>((number_ * 8191U + requests_ * 131U + i) % largest_whole);
    input_[0] = static_cast<float>(number_);
    input_[1] = static_cast<float>(requests_ % largest_whole);
    talk_->ask(std::as_bytes(std::span{input_}));
    choose_plan();
    stage_ = stage::request;
    due_ = clock::now() + to_.patience;
    on_ready();
}

/// One in five requests ends early.
void client::choose_plan() {
    constexpr plan early[] = {plan::cut, plan::leave, plan::give_up, plan::close_after};
    const auto dice = std::uniform_int_distribution{0, 19}(chance_);
    plan_ = dice < 4 ? early[dice] : plan::stay;
    may_send_ = std::numeric_limits<std::size_t>::max();
    if (plan_ == plan::cut) may_send_ = std::uniform_int_distribution<std::size_t>{1, talk_->unsent().size()}(chance_);
}

void client::on_ready() {
    // A server may end a connection that has no request.
    const bool open = line_->write(*talk_, may_send_) && line_->read(*talk_);
    if (stage_ == stage::pause) {
        if (!open) line_.reset();
        return;
    }
    if (talk_->ended()) return take_answer();
    if (!open) return fail("the connection ended before its answer");
    follow_plan();
}

void client::follow_plan() {
    if (plan_ == plan::cut && may_send_ == 0) return leave();
    if (!talk_->unsent().empty()) return;
    if (plan_ == plan::leave || (plan_ == plan::give_up && over_ == protocol::http)) return leave();
    if (plan_ != plan::give_up || !talk_->give_up()) return;
    ++seen_.given_up;
    rest();
    static_cast<void>(line_->write(*talk_, may_send_));
}

void client::take_answer() {
    const std::string_view got = talk_->elements();
    std::array<float, 8> wanted = input_;
    for (float& each : wanted) each *= 2;
    if (got.size() != sizeof wanted || std::memcmp(got.data(), wanted.data(), sizeof wanted) != 0)
        return fail(got.size() == sizeof wanted ? "the answer to another request" : talk_->complaint());
    ++seen_.answers;
    if (plan_ == plan::close_after) line_.reset();
    rest();
}

void client::rest() {
    stage_ = stage::pause;
    std::uniform_int_distribution<std::int64_t> pause{0, 2 * to_.pause.count()};
    due_ = clock::now() + std::chrono::milliseconds{pause(chance_)};
}

void client::leave() {
    ++seen_.left;
    line_.reset();
    rest();
}

void client::fail(const std::string& why) {
    if (seen_.failures++ == 0)
        seen_.first_failure = "client " + std::to_string(number_) +
                              (over_ == protocol::http ? " (HTTP), " : " (gRPC), ") + "request " +
                              std::to_string(requests_) + ": " + why;
    line_.reset();
    rest();
}

void client::on_due() {
    if (stage_ == stage::request) return fail("no answer in time");
    if (finishing_)
        line_.reset();
    else
        begin();
}

}  // namespace accel::examples::serving::doors::crowd
