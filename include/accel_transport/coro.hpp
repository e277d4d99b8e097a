// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Awaiting calls in C++20 coroutines (docs/coroutines.md). Not part of accel_transport.hpp. It has no scheduler:
/// coroutines resume inside `calls::poll` and `gate::run`, which the application's own loop calls.
#include <accel_transport/coro/calls.hpp>
#include <accel_transport/coro/gate.hpp>
