// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

/// Code for both processors, marked with ACCEL_HOST_DEVICE.
/// So that both give the same bits, the host's code and the kernels are compiled without contraction of a
/// product and a sum into one operation (-ffp-contract=off, -fmad=false), and nothing takes its functions of
/// a library.
