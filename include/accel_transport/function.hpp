// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace accel {

template <class Signature>
class shared_function;

namespace detail {
template <class Type, class Function, class Result, class... Arguments>
concept callable_for = !std::is_same_v<std::remove_cvref_t<Type>, Function> &&
                       std::is_invocable_r_v<Result, std::decay_t<Type>&, Arguments...>;
}

/// A function of the application that the library calls: any callable, also a move-only one. Copies share the callable,
/// which is destroyed with the last copy. Making one from a callable allocates, and throws `std::bad_alloc` if memory
/// has run out. Must not be called while it is empty.
template <class Result, class... Arguments>
class shared_function<Result(Arguments...)> {
  public:
    shared_function() noexcept = default;
    /// A null pointer to a function makes an empty one.
    template <detail::callable_for<shared_function, Result, Arguments...> Callable>
    // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): not of itself
    shared_function(Callable&& callable) {
        using callable_type = std::decay_t<Callable>;
        auto made = std::make_shared<callable_type>(std::forward<Callable>(callable));
        if constexpr (std::is_pointer_v<callable_type>)
            if (*made == nullptr) return;
        callable_ = std::move(made);
        call_ = [](void* of, Arguments&&... arguments) -> Result {
            return (*static_cast<callable_type*>(of))(std::forward<Arguments>(arguments)...);
        };
    }

    explicit operator bool() const noexcept { return callable_ != nullptr; }
    Result operator()(Arguments... arguments) const {
        return call_(callable_.get(), std::forward<Arguments>(arguments)...);
    }

  private:
    std::shared_ptr<void> callable_;
    Result (*call_)(void* of, Arguments&&... arguments) = nullptr;
};

}  // namespace accel
