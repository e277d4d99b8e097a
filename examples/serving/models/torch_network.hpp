// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace accel::examples::serving {

class torch_gpu;

/// A network of a file, without its shapes. Work is given to torch's current stream. Any thread, several at once.
class torch_network {
  public:
    virtual ~torch_network() = default;
    /// Throws as torch does.
    [[nodiscard]] virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) = 0;
};

/// TorchScript (`.pt`) or a package of AOTInductor's (`.pt2`, on a GPU alone). `gpu` null: the CPU.
[[nodiscard]] result<std::unique_ptr<torch_network>> read_torch_network(const std::string& path, torch_gpu* gpu);

/// What torch throws, as a result.
template <class Work>
[[nodiscard]] result<void> with_torch(status meaning, const Work& work);

/// The first line of what torch says: below it come its own calls.
[[nodiscard]] std::string first_line(const char* text);

template <class Work>
result<void> with_torch(status meaning, const Work& work) {
    try {
        work();
        return {};
    } catch (const c10::Error& failure) {
        return error{meaning, 0, first_line(failure.what_without_backtrace())};
    } catch (const std::exception& failure) {
        return error{meaning, 0, first_line(failure.what())};
    }
}

}  // namespace accel::examples::serving
