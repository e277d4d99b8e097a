// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/json_split.hpp"

#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

constexpr std::string_view blanks = " \t\r\n";

/// An object or array that is open.
struct level {
    bool object = false;
    bool key_follows = false;
    std::string key{};      ///< of the member
    std::size_t place = 0;  ///< of the element
};
using levels = std::vector<level>;

bool is_data(const levels& open) {
    return open.size() == 3 && open[0].object && open[0].key == "inputs" && !open[1].object && open[2].object &&
           open[2].key == "data";
}

bool is_field(const levels& open) {
    return open.size() == 1 && open[0].object && open[0].key != "id" && open[0].key != "parameters";
}

std::string key_of(std::string_view literal) {
    if (literal.find('\\') == std::string_view::npos) return std::string{literal.substr(1, literal.size() - 2)};
    const json read = json::parse(literal, nullptr, false);
    return read.is_string() ? read.get<std::string>() : std::string{};
}

/// Walks over a text, which need not be JSON: the rest is parsed afterwards, and held values when they are read.
class splitter {
  public:
    splitter(std::string_view text, bool (*holds)(const levels&)) : text_(text), holds_(holds) {}

    result<split_object> run() {
        while (at_ < text_.size()) {
            step();
            if (too_deep_) return refusal(status::invalid_argument, "the JSON is nested deeper than 16 levels");
            if (rest_.size() > max_json_frame)
                return refusal(status::invalid_argument, "the JSON has more than 64 KiB besides its data");
        }
        json tree = json::parse(rest_, nullptr, false);
        if (tree.is_discarded()) return refusal(status::invalid_argument, "the request is not JSON");
        if (!tree.is_object()) return refusal(status::invalid_argument, "the request is not a JSON object");
        return split_object{std::move(tree), std::move(held_)};
    }

  private:
    void step() {
        const char c = text_[at_];
        if (c == '"') return take_string();
        ++at_;
        if (blanks.find(c) == std::string_view::npos)
            rest_ += c;
        else if (rest_.empty() || rest_.back() != ' ')
            rest_ += ' ';
        if (c == '{' || c == '[') enter(c == '{');
        if ((c == '}' || c == ']') && !open_.empty()) open_.pop_back();
        if (c == ',' && !open_.empty()) next_member();
        if (c == ':' && !open_.empty()) take_value();
    }

    void enter(bool object) {
        open_.push_back({object, object});
        too_deep_ = open_.size() > max_json_depth;
    }

    void next_member() {
        open_.back().key_follows = open_.back().object;
        ++open_.back().place;
    }

    void take_string() {
        const std::size_t end = std::min(end_of_string(text_, at_), text_.size());
        const std::string_view literal = text_.substr(at_, end - at_);
        at_ = end;
        if (literal.size() > max_json_frame) {
            rest_.append(max_json_frame + 1, ' ');  // refused
            return;
        }
        rest_ += literal;
        if (open_.empty() || !std::exchange(open_.back().key_follows, false) || literal.size() < 2) return;
        open_.back().key = key_of(literal);
    }

    void take_value() {
        if (!holds_(open_)) return;
        const std::size_t begin = at_;
        skip_value();
        const std::size_t place = open_.size() > 1 ? open_[open_.size() - 2].place : 0;
        held_.push_back({open_.back().key, place, text_.substr(begin, at_ - begin)});
        rest_ += "null";
    }

    /// To what ends the member: a comma or a bracket that it has not opened.
    void skip_value() {
        std::size_t depth = 0;
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '"') at_ = std::min(end_of_string(text_, at_), text_.size()) - 1;
            if (c == '[' || c == '{') ++depth;
            if (depth == 0 && (c == ',' || c == '}' || c == ']')) return;
            if (c == ']' || c == '}') --depth;
            too_deep_ = too_deep_ || open_.size() + depth > max_json_depth;
            if (too_deep_) return;
        }
    }

    std::string_view text_;
    bool (*holds_)(const levels&);
    std::size_t at_ = 0;
    levels open_;
    bool too_deep_ = false;
    std::string rest_;
    std::vector<held_value> held_;
};

}  // namespace

result<split_object> split_inference(std::string_view text) {
    return splitter{text, is_data}.run();
}

result<split_object> split_fields(std::string_view text) {
    return splitter{text, is_field}.run();
}

const held_value* find_held(const split_object& in, std::string_view key, std::size_t place) {
    const auto last = std::find_if(in.held.rbegin(), in.held.rend(),
                                   [&](const held_value& each) { return each.key == key && each.place == place; });
    return last == in.held.rend() ? nullptr : &*last;
}

}  // namespace accel::examples::serving::oip
