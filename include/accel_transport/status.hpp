// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace accel {

/// The outcome of an operation, on both ends and on the wire. The values are fixed.
enum class status : std::uint16_t {
    ok = 0,
    again = 1,               ///< back-pressure: no free slot, or a full queue; nothing was done
    timed_out = 2,           ///< the deadline passed first
    cancelled = 3,           ///< cancelled by its owner
    peer_lost = 4,           ///< the peer died, went silent or broke the protocol
    closed = 5,              ///< this end was closed, or the server is stopping and no handler has seen the call
    message_too_large = 6,   ///< longer than the session's limit; nothing was sent
    overloaded = 7,          ///< the server is at a limit: sessions, memory or open exchanges
    invalid_argument = 8,    ///< a value is out of range or misspelt
    invalid_state = 9,       ///< a stale or foreign handle, or an operation out of order
    unsupported = 10,        ///< this machine, build or peer lacks a required feature
    unauthorized = 11,       ///< a missing or wrong key, or an invalid or expired session token
    version_mismatch = 12,   ///< the ends speak different versions of the protocol
    protocol_error = 13,     ///< the peer sent something that no correct peer sends
    out_of_memory = 14,      ///< memory could not be allocated or registered
    system_error = 15,       ///< a system call failed; `error::native` holds errno
    application_error = 16,  ///< the handler answered with a failure; `completion::code` is the handler's code
    abandoned = 17,          ///< the handler dropped its exchange without an answer
    device_lost = 18,        ///< this process can no longer use the accelerator
    not_found = 19,          ///< the server has no such target
};

/// Number of values in `status`; a wire value at or above this number is a protocol error.
inline constexpr std::uint16_t status_count = 20;

/// The name of a status as written in the enum ("peer_lost"); never null, static storage.
[[nodiscard]] ACCEL_API std::string_view to_string(status s) noexcept;

/// Why a control-path operation failed.
struct error {
    status code = status::ok;
    int native = 0;       ///< errno, or the backend's own error number; 0: none
    std::string message;  ///< one line for people: what failed and what to do next
};

namespace detail {
/// Prints the error and ends the process, in every build: the program read the value of a failed result.
[[noreturn]] ACCEL_API void end_with(const error& failure) noexcept;
[[noreturn]] ACCEL_API void end_with(status failure) noexcept;
/// Ends the process likewise: the program read the error of a successful result.
[[noreturn]] ACCEL_API void end_with_value() noexcept;
}  // namespace detail

/// A value or an `Error`; both convert implicitly. `Error` is `accel::error`, or on the data path `status`.
template <class Value, class Error = error>
class [[nodiscard]] result {
    static_assert(std::is_same_v<Error, accel::error>, "the error of a result is accel::error or accel::status");

  public:
    // NOLINTBEGIN(google-explicit-constructor)
    result(Value value) : content_(std::in_place_index<0>, std::move(value)) {}
    result(accel::error failure) : content_(std::in_place_index<1>, std::move(failure)) {}
    // NOLINTEND(google-explicit-constructor)

    [[nodiscard]] bool ok() const noexcept { return content_.index() == 0; }
    explicit operator bool() const noexcept { return ok(); }

    /// The value. If there is an error instead: prints the error and ends the process.
    [[nodiscard]] Value& value() & noexcept { return *checked(); }
    [[nodiscard]] const Value& value() const& noexcept { return *checked(); }
    [[nodiscard]] Value&& value() && noexcept { return std::move(*checked()); }
    Value& operator*() & noexcept { return *checked(); }
    const Value& operator*() const& noexcept { return *checked(); }
    Value&& operator*() && noexcept { return std::move(*checked()); }
    Value* operator->() noexcept { return checked(); }
    const Value* operator->() const noexcept { return checked(); }

    /// The error. If there is a value instead: ends the process with a message.
    [[nodiscard]] const accel::error& error() const noexcept {
        if (ok()) detail::end_with_value();
        return *std::get_if<1>(&content_);
    }
    [[nodiscard]] status code() const noexcept { return ok() ? status::ok : error().code; }

  private:
    const Value* checked() const noexcept {
        if (!ok()) detail::end_with(error());
        return std::get_if<0>(&content_);
    }
    Value* checked() noexcept { return const_cast<Value*>(std::as_const(*this).checked()); }
    std::variant<Value, accel::error> content_;
};

/// A value, or the `status` of a failure without a text: takes no memory and is as trivial to copy as its value.
template <class Value>
class [[nodiscard]] result<Value, status> {
    static_assert(std::is_trivially_copyable_v<Value>);

  public:
    // NOLINTBEGIN(google-explicit-constructor)
    result(const Value& value) noexcept : value_(value) {}
    /// `failure` is not `ok`.
    result(status failure) noexcept : code_(failure) {}
    // NOLINTEND(google-explicit-constructor)

    [[nodiscard]] bool ok() const noexcept { return code_ == status::ok; }
    explicit operator bool() const noexcept { return ok(); }

    /// The value. After a failure: prints the status and ends the process.
    [[nodiscard]] Value& value() & noexcept { return *checked(); }
    [[nodiscard]] const Value& value() const& noexcept { return *checked(); }
    [[nodiscard]] Value value() && noexcept { return *checked(); }
    Value& operator*() & noexcept { return *checked(); }
    const Value& operator*() const& noexcept { return *checked(); }
    Value operator*() && noexcept { return *checked(); }
    Value* operator->() noexcept { return checked(); }
    const Value* operator->() const noexcept { return checked(); }

    /// The failure. If there is a value instead: ends the process with a message.
    [[nodiscard]] status error() const noexcept {
        if (ok()) detail::end_with_value();
        return code_;
    }
    [[nodiscard]] status code() const noexcept { return code_; }

  private:
    const Value* checked() const noexcept {
        if (!ok()) detail::end_with(code_);
        return &value_;
    }
    Value* checked() noexcept { return const_cast<Value*>(std::as_const(*this).checked()); }

    Value value_{};
    status code_ = status::ok;
};

/// Success or an `error`.
template <>
class [[nodiscard]] result<void> {
  public:
    result() = default;
    // NOLINTNEXTLINE(google-explicit-constructor)
    result(accel::error failure) : failure_(std::move(failure)) {}

    [[nodiscard]] bool ok() const noexcept { return failure_.code == status::ok; }
    explicit operator bool() const noexcept { return ok(); }
    /// The error. After success: ends the process with a message.
    [[nodiscard]] const accel::error& error() const noexcept {
        if (ok()) detail::end_with_value();
        return failure_;
    }
    [[nodiscard]] status code() const noexcept { return failure_.code; }

  private:
    accel::error failure_;
};

}  // namespace accel
