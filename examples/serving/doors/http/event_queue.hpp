// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::examples::serving::doors {

/// The text of an answer in parts that a client has not taken yet, and the parts that it was made of. These are given
/// back when the client has taken their text, so that the model's server waits for slow clients.
class event_queue {
  public:
    /// Begins anew. `chunked`: HTTP's chunks; else the connection's end is the answer's.
    void begin(bool chunked, std::string head);
    void add(std::string_view event);
    void add(std::string_view event, call_id part);
    /// Nothing follows.
    void finish();

    [[nodiscard]] bool begun() const { return begun_; }
    [[nodiscard]] bool finished() const { return finished_; }
    [[nodiscard]] bool writing() const { return !text_.empty(); }
    [[nodiscard]] bool empty() const { return next_text_.empty(); }
    /// Everything that was added is to be written now.
    [[nodiscard]] const std::string& take();
    /// It has been written; these parts can be given back.
    [[nodiscard]] std::vector<call_id> written();
    /// All parts, because nobody takes them.
    [[nodiscard]] std::vector<call_id> drop();

  private:
    std::string text_;  ///< that is being written
    std::vector<call_id> parts_;
    std::string next_text_;
    std::vector<call_id> next_parts_;
    bool chunked_ = false;
    bool begun_ = false;
    bool finished_ = false;
};

}  // namespace accel::examples::serving::doors
