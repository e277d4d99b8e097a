// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "accel_transport needs C++20: compile with -std=c++20 (also for nvcc)"
#endif

/// Version of the library's source interface (semantic versioning).
#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0

#if defined(ACCEL_STATIC)
#define ACCEL_API
#elif defined(ACCEL_BUILDING)
#define ACCEL_API __attribute__((visibility("default")))
#else
#define ACCEL_API
#endif
