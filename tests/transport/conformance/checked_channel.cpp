// SPDX-License-Identifier: Apache-2.0
#include "checked_channel.hpp"

#include "payload.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {

namespace {

void require_ok(status outcome, const char* what) {
    if (outcome != status::ok) throw std::runtime_error(std::string(what) + ": " + std::string(to_string(outcome)));
}

}  // namespace

checked_channel::checked_channel(checked_channel&& other) noexcept
    : channel_(std::move(other.channel_)), open_(std::exchange(other.open_, {})) {}

checked_channel::~checked_channel() {
    EXPECT_TRUE(open_.empty()) << open_.size() << " accepted calls never completed";
}

status checked_channel::submit(call_id id, std::size_t length, const submit_options& options) {
    return accepted(channel_.submit(id, length, options), id, options);
}

status checked_channel::submit(call_id id, slice payload, const submit_options& options) {
    return accepted(channel_.submit(id, payload, options), id, options);
}

status checked_channel::submit(call_id id, std::span<const slice> ranges, const submit_options& options) {
    return accepted(channel_.submit(id, ranges, options), id, options);
}

status checked_channel::accepted(status outcome, call_id id, const submit_options& options) {
    if (outcome == status::ok) {
        const bool fresh = open_.emplace(id, submission{options.tag, options.trace_id}).second;
        EXPECT_TRUE(fresh) << "slot " << id.slot << " generation " << id.generation << " was accepted twice";
    }
    return outcome;
}

void checked_channel::completed(std::span<const completion> all) {
    for (const completion& c : all) {
        const auto found = open_.find(c.call);
        EXPECT_EQ(c.more, c.id != c.call) << "only a part has an id of its own";
        if (found == open_.end()) {
            ADD_FAILURE() << "completion " << to_string(c.status) << " for slot " << c.id.slot << " generation "
                          << c.id.generation << ", which is not open";
            continue;
        }
        EXPECT_EQ(c.tag, found->second.tag);
        EXPECT_EQ(c.trace_id, found->second.trace_id);
        EXPECT_LT(static_cast<std::uint16_t>(c.status), status_count);
        if (!c.more) open_.erase(found);
    }
}

std::size_t checked_channel::poll(std::span<completion> out) {
    const std::size_t count = channel_.poll(out);
    completed(out.first(count));
    return count;
}

std::size_t checked_channel::wait(std::span<completion> out, nanoseconds timeout) {
    const std::size_t count = channel_.wait(out, timeout);
    completed(out.first(count));
    return count;
}

call_id checked_channel::send(std::span<const std::byte> request, const submit_options& options) {
    const auto call = begin();
    require_ok(call.code(), "begin");
    if (request.size() > call->request.size()) throw std::runtime_error("the request is longer than its room");
    std::copy(request.begin(), request.end(), call->request.begin());
    require_ok(submit(call->id, request.size(), options), "submit");
    return call->id;
}

call_id checked_channel::send_seed(std::size_t length, std::uint64_t seed, submit_options options) {
    const auto call = begin();
    require_ok(call.code(), "begin");
    if (length > call->request.size()) throw std::runtime_error("the request is longer than its room");
    fill(call->request.first(length), seed);
    options.trace_id = seed;
    require_ok(submit(call->id, length, options), "submit");
    return call->id;
}

completion checked_channel::next(nanoseconds bound) {
    completion one;
    if (wait({&one, 1}, bound) != 1) throw std::runtime_error("no completion within the bound");
    return one;
}

std::size_t checked_channel::finish(status expected, nanoseconds bound) {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    std::size_t as_expected = 0;
    while (!open_.empty()) {
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left <= 0ns) {
            ADD_FAILURE() << open_.size() << " calls still open after the bound";
            break;
        }
        const completion c = next(left);
        as_expected += c.status == expected ? 1U : 0U;
    }
    return as_expected;
}

bool checked_channel::slot_comes_back(nanoseconds bound) {
    return eventually(bound, [&] {
        completion one;
        if (poll({&one, 1}) == 1) one.release();
        const auto call = begin();
        if (!call) return false;
        EXPECT_EQ(release(call->id), status::ok);
        return true;
    });
}

bool checked_channel::all_slots_free(nanoseconds bound) {
    std::vector<call_id> taken;
    const std::size_t slots = channel_.slots();
    const bool all = eventually(bound, [&] {
        completion one;
        EXPECT_EQ(poll({&one, 1}), 0U);
        while (const auto call = begin()) taken.push_back(call->id);
        return taken.size() == slots;
    });
    for (const call_id id : taken) EXPECT_EQ(release(id), status::ok);
    return all;
}

}  // namespace accel::tests
