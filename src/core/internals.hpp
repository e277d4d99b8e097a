// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/server.hpp>
#include <accel_transport/status.hpp>

#include <memory>
#include <utility>

namespace accel::core {

/// The library's own way into public objects, which are friends with it.
struct internals {
    [[nodiscard]] static const std::shared_ptr<context_state>& state_of(const context& of) noexcept {
        return of.state_;
    }
    [[nodiscard]] static region make_region(std::unique_ptr<region_state> state) noexcept;
    [[nodiscard]] static exchange_state* state_of(const exchange& of) noexcept { return of.state_; }
    [[nodiscard]] static exchange make_exchange(exchange_state* state) noexcept { return exchange{state}; }
    /// As a program does that was compiled with other headers than the library.
    template <class Made, class... Arguments>
    [[nodiscard]] static result<Made> open(Arguments&&... with) {
        return Made::open(std::forward<Arguments>(with)...);
    }
};

}  // namespace accel::core
