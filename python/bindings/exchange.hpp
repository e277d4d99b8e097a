// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "context.hpp"
#include "lifetime.hpp"

#include <accel_transport/server.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

/// An exchange, shared with the views of its memory. The memory is the client's again after the answer, so an answer
/// leaves when the last view has gone: usually at once, or when the handler returns.
class served final : public owner {
  public:
    explicit served(exchange&& one) noexcept : local_(one.scheme() == "local"), own_(std::move(one)) {}

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

    tensor placed;
    std::size_t placed_bytes = 0;

  private:
    void unpinned() noexcept override;
    [[nodiscard]] status send();  ///< with `lock_`
    local_exchange local_;
    mutable std::recursive_mutex lock_;
    std::optional<exchange> own_;
    std::optional<answer> waiting_;
};

/// The Python object.
struct py_exchange {
    std::shared_ptr<served> own;
};

/// Answers with data of Python: bytes, tensors, a Region's bytes, or the number of bytes that were written in place.
void reply_with(const py_exchange& self, nb::handle data, nb::handle metadata);

void add_exchange(nb::module_& module);

}  // namespace accel::python
