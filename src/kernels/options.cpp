// SPDX-License-Identifier: Apache-2.0
#include "kernels/options.hpp"

#include "core/option_keys.hpp"

#include <array>

namespace accel::core {

template <>
constexpr std::string_view expected<gpu_engine> = "auto, direct or proxy";
template <>
constexpr std::string_view expected<service_sharing> = "shared or exclusive";
template <>
constexpr std::string_view expected<queue_location> = "auto, host or gpu";

}  // namespace accel::core

namespace accel::gpu {
namespace {

using core::expected;
using core::option_key;
using core::out_of_bounds;
using core::parse_value;

bool parse_value(std::string_view text, gpu_engine& out) {
    return core::find_name<gpu_engine>(
        text, {{"auto", gpu_engine::automatic}, {"direct", gpu_engine::direct}, {"proxy", gpu_engine::proxy}}, out);
}
bool parse_value(std::string_view text, service_sharing& out) {
    return core::find_name<service_sharing>(
        text, {{"shared", service_sharing::shared}, {"exclusive", service_sharing::exclusive}}, out);
}
bool parse_value(std::string_view text, queue_location& out) {
    return core::find_name<queue_location>(
        text, {{"auto", queue_location::automatic}, {"host", queue_location::host}, {"gpu", queue_location::gpu}}, out);
}

#define ACCEL_KERNEL_OPTIONS(options)                                                            \
    ACCEL_OPTION_OF(options, .kernels, engine), ACCEL_OPTION_OF(options, .kernels, host_slots),  \
        ACCEL_OPTION_OF(options, .kernels, sharing), ACCEL_OPTION_OF(options, .kernels, queues), \
        ACCEL_OPTION_OF(options, .kernels, proxy_threads)
constexpr std::array service_keys{ACCEL_KERNEL_OPTIONS(gpu_service_options)};
constexpr std::array channel_keys{ACCEL_OPTION_OF(gpu_channel_options, , memory),
                                  ACCEL_KERNEL_OPTIONS(gpu_channel_options)};
#undef ACCEL_KERNEL_OPTIONS

}  // namespace

result<bool> kernel_keys::set(std::string_view name, std::string_view value) {
    if (auto* const service = std::get_if<gpu_service_options*>(&into_); service != nullptr)
        return core::set_option(service_keys, name, value, **service);
    return core::set_option(channel_keys, name, value, *std::get<gpu_channel_options*>(into_));
}

std::string kernel_keys::names() const {
    return into_.index() == 0 ? core::names_of(service_keys) : core::names_of(channel_keys);
}

result<void> check(const kernel_options& options, const verbs_options& verbs) {
    if (options.proxy_threads > 64) return out_of_bounds("proxy_threads", "0 to 64");
    if (options.engine == gpu_engine::direct && !verbs.direct)
        return out_of_bounds("engine", "auto or proxy with direct=false");
    if (options.engine == gpu_engine::direct && options.proxy_threads > 0)
        return out_of_bounds("proxy_threads", "0 with engine=direct, which has no proxy");
    if (options.queues != queue_location::automatic && options.sharing != service_sharing::exclusive)
        return out_of_bounds("queues", "auto without sharing=exclusive");
    if (options.queues == queue_location::gpu && options.engine == gpu_engine::proxy)
        return out_of_bounds("queues", "auto or host with engine=proxy");
    return {};
}

}  // namespace accel::gpu
