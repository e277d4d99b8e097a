# SPDX-License-Identifier: Apache-2.0
# ACCEL_ASIO: accel_transport/coro/asio.hpp can be compiled here, by the rule in that header.
# ACCEL_ASIO_AWAITABLE: that Asio knows the coroutines of this compiler.
include(CheckCXXSourceCompiles)
set(include_asio "#if __has_include(<asio.hpp>)
#include <asio/awaitable.hpp>
#include <asio/version.hpp>
static_assert(ASIO_VERSION >= 102200);
#else
#include <boost/asio/awaitable.hpp>
#include <boost/asio/version.hpp>
static_assert(BOOST_ASIO_VERSION >= 102200);
namespace asio = boost::asio;
#endif
int main() {}")
set(CMAKE_REQUIRED_FLAGS -std=c++20)
check_cxx_source_compiles("${include_asio}" ACCEL_ASIO_FOUND)
check_cxx_source_compiles("${include_asio}\nasio::awaitable<void> nothing() { co_return; }" ACCEL_ASIO_COROUTINES)
unset(CMAKE_REQUIRED_FLAGS)
set(ACCEL_ASIO ${ACCEL_ASIO_FOUND})
if(NOT ACCEL_ASIO)
  message(STATUS "Asio: an example and its tests are left out; they need libasio-dev 1.22, or Boost 1.78, or newer")
elseif("${ACCEL_SANITIZE}" MATCHES thread)
  # gcc's ThreadSanitizer does not know the fences that Asio uses.
  set(ACCEL_ASIO OFF)
endif()
set(ACCEL_ASIO_AWAITABLE OFF)
if(ACCEL_ASIO AND ACCEL_ASIO_COROUTINES)
  set(ACCEL_ASIO_AWAITABLE ON)
endif()
