// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "context.hpp"
#include "lifetime.hpp"
#include "waker.hpp"

#include <accel_transport/server.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

/// An exchange, shared with the views of its memory. The memory is the client's again after the answer, so an answer
/// leaves when the last view has gone: usually at once, or when the handler returns.
class served final : public owner {
  public:
    explicit served(exchange&& one) noexcept;

    /// The answer that will leave: `length` bytes of the room, or a failure.
    struct answer {
        std::size_t length = 0;
        status reason = status::ok;
        std::uint32_t code = 0;
        std::string text{};
        std::vector<std::pair<std::string, std::string>> metadata{};
    };

    /// The exchange, until it has an answer. `invalid_state` after it: an exception.
    [[nodiscard]] exchange& open();
    [[nodiscard]] bool answered() const noexcept;
    /// An answer is kept for the last view.
    [[nodiscard]] bool waits() const noexcept;
    /// Null: has been answered.
    [[nodiscard]] exchange* open_or_null() noexcept;
    /// Sends the answer, or keeps it for the last view.
    [[nodiscard]] status reply(answer&& what);

    /// The right of one thread to send and receive parts, and to answer. `invalid_state` if another has it: an
    /// exception.
    class use {
      public:
        explicit use(served& of);
        use(const use&) = delete;
        use& operator=(const use&) = delete;
        ~use() { of_.busy_.store(false, std::memory_order_release); }

      private:
        served& of_;
    };

    /// `to` is told `key` once room for a part (else: a part of the request), or the end of the call, may have come.
    /// True: it is there already.
    [[nodiscard]] bool await(const std::shared_ptr<loop_waker>& to, bool room);
    const std::uint64_t key;

    tensor placed;
    std::size_t placed_bytes = 0;
    bool room_taken = false;       ///< the handler may have written to the room
    bool described = false;        ///< an answer that was not sent has described its tensors
    bool asked_for_parts = false;  ///< the handler knows of parts of the request

  private:
    void unpinned() noexcept override;
    [[nodiscard]] status send();  ///< with `lock_`
    local_exchange local_;
    mutable std::recursive_mutex lock_;
    std::optional<exchange> own_;
    std::optional<answer> waiting_;
    std::atomic<bool> busy_{false};
    std::shared_ptr<loop_waker> told_;  ///< the event loop that waits here
    std::shared_ptr<part_wait> for_room_, for_request_;
    std::optional<std::stop_callback<loop_waker::post>> for_end_;
};

/// The Python object.
struct py_exchange {
    std::shared_ptr<served> own;
};

/// Answers with data of Python: bytes, tensors, a Region's bytes, or the number of bytes that were written in place.
void reply_with(const py_exchange& self, nb::handle data, nb::handle metadata);

/// The same for what a handler has returned. None, or an answer that was given before: without effect.
void reply_with_result(const py_exchange& self, nb::handle result);

void add_exchange(nb::module_& module);

}  // namespace accel::python
