// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "link/settings.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::softnic {

enum class link_layer : std::uint8_t { infiniband, ethernet };

/// The link layer of each port of one device.
using device_plan = std::vector<link_layer>;

enum class poll_mode : std::uint8_t {
    spin,           ///< a thread that never sleeps: lowest latency, wants a core
    adaptive,       ///< a thread that sleeps when idle, helped by the program's own calls into libmlx5
    deterministic,  ///< no thread, virtual time: the device moves only inside the program's calls
};

/// Who moves bytes to and from the memory of a CUDA GPU.
enum class cuda_dma : std::uint8_t {
    kernel,  ///< a copy kernel that stays while there is work; leaves the copy engines to the program
    memcpy,  ///< the driver's asynchronous copies
    off,     ///< nobody: GPU memory cannot be registered
};

/// What the environment says (variables SOFTNIC_*; `softnic help` lists them).
struct settings {
    std::vector<device_plan> devices{{link_layer::infiniband}};
    std::string fabric = "default";
    poll_mode mode = poll_mode::adaptive;
    bool strict = false;
    std::uint64_t seed = 1;
    std::string faults;
    std::string trace;
    link_settings link;
    cuda_dma cuda = cuda_dma::kernel;
    bool peer_memory = true;  ///< ibv_reg_mr takes GPU memory, as with nvidia-peermem
    bool dmabuf = true;       ///< ibv_reg_dmabuf_mr works
    std::uint64_t cuda_idle_us = 500;
    std::uint64_t cuda_stay_ms = 20;
    std::uint64_t cuda_timeout_ms = 2000;
    std::uint64_t shortest_timeout_ns = 4'000'000;  ///< floor of the retry timer, as adapters have one too

    /// Equal for processes that may share a fabric.
    [[nodiscard]] std::uint64_t configuration_hash() const;
};

/// Reads SOFTNIC_*. A value that makes no sense throws std::invalid_argument with a sentence.
[[nodiscard]] settings settings_from_environment();

/// "ib,roce+roce": mlx5_0 with one InfiniBand port, mlx5_1 with two RoCE ports.
[[nodiscard]] std::vector<device_plan> parse_devices(std::string_view text);
[[nodiscard]] poll_mode parse_poll_mode(std::string_view text);
[[nodiscard]] std::string_view to_string(poll_mode mode);
[[nodiscard]] cuda_dma parse_cuda_dma(std::string_view text);

}  // namespace accel::softnic
