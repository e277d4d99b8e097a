// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that a host program needs. GPU-resident services and channels have their own headers: gpu_channel.hpp,
/// gpu_graph.hpp and gpu_service.hpp for the host, device/ for kernels.
#include <accel_transport/channel.hpp>
#include <accel_transport/channel_pool.hpp>
#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/function.hpp>
#include <accel_transport/interceptor.hpp>
#include <accel_transport/log.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/metrics.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/server.hpp>
#include <accel_transport/shared_channel.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/tensor.hpp>
#include <accel_transport/tensor_view.hpp>
#include <accel_transport/timeline.hpp>
#include <accel_transport/trace.hpp>
