// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/event_queue.hpp"

#include <array>
#include <charconv>

namespace accel::examples::serving::doors {
namespace {

std::string hexadecimal(std::size_t number) {
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
    return {digits.data(), end};
}

}  // namespace

void event_queue::begin(bool chunked, std::string head) {
    *this = {};
    begun_ = true;
    chunked_ = chunked;
    next_text_ = std::move(head);
}

void event_queue::add(std::string_view event) {
    if (chunked_) next_text_ += hexadecimal(event.size()) + "\r\n";
    next_text_ += event;
    if (chunked_) next_text_ += "\r\n";
}

void event_queue::add(std::string_view event, call_id part) {
    add(event);
    next_parts_.push_back(part);
}

void event_queue::finish() {
    finished_ = true;
    if (chunked_) next_text_ += "0\r\n\r\n";
}

const std::string& event_queue::take() {
    text_ = std::exchange(next_text_, {});
    parts_ = std::exchange(next_parts_, {});
    return text_;
}

std::vector<call_id> event_queue::written() {
    text_.clear();
    return std::exchange(parts_, {});
}

std::vector<call_id> event_queue::drop() {
    std::vector<call_id> out = std::exchange(parts_, {});
    out.insert(out.end(), next_parts_.begin(), next_parts_.end());
    next_parts_.clear();
    return out;
}

}  // namespace accel::examples::serving::doors
