// SPDX-License-Identifier: Apache-2.0
#include "staging/accelerator.hpp"

/// In the place of accelerator.cpp in a build without CUDA.
namespace accel::core {
namespace {

class no_accelerator final : public accelerator {
  public:
    result<std::string> probe() override { return missing(); }
    result<accelerator_device*> open(memory_kind) override { return missing(); }
    std::vector<accelerator_device*> opened() override { return {}; }
    result<void> check(const void*, std::size_t, memory_kind said) override {
        if (said == memory_kind::host()) return {};
        return missing();
    }
    result<bool> pin(void*, std::size_t) override { return missing(); }
    void unpin(void*) noexcept override {}
    result<bool> pin_registers(void*, std::size_t) override { return missing(); }

  private:
    static error missing() {
        return {status::unsupported, 0,
                "GPU memory: this build is without CUDA; build where nvcc is found, with -DACCEL_CUDA=ON"};
    }
};

}  // namespace

std::shared_ptr<accelerator> make_accelerator() {
    return std::make_shared<no_accelerator>();
}

}  // namespace accel::core
