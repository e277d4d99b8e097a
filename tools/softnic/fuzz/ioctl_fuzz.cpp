// SPDX-License-Identifier: Apache-2.0
// Any bytes as a sequence of ioctls. Each command: object, method, count, then attributes; data words may
// point into a scratch area that the fuzzer also fills, so that it gets behind the pointers.
#include "abi/dispatch.hpp"
#include "dma/guarded.hpp"
#include "ioctl_builder.hpp"

#include <cstring>
#include <vector>

#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace accel::softnic;

class reader {
  public:
    reader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    template <class T>
    T take() {
        T value{};
        const std::size_t size = std::min(sizeof value, left_);
        if (size > 0) std::memcpy(&value, data_, size);
        data_ += size;
        left_ -= size;
        return value;
    }
    [[nodiscard]] bool empty() const { return left_ == 0; }
    [[nodiscard]] const std::uint8_t* at() const { return data_; }
    [[nodiscard]] std::size_t left() const { return left_; }

  private:
    const std::uint8_t* data_;
    std::size_t left_;
};

constexpr std::size_t scratch_bytes = 4096;
alignas(64) std::uint8_t scratch[2 * scratch_bytes];

/// The high bit of the first byte of an attribute says "pointer into scratch".
void add_attribute(reader& from, testing::ioctl_builder& command) {
    const auto shape = from.take<std::uint8_t>();
    const auto id = static_cast<std::uint16_t>((shape & 0x0f) | ((shape & 0x10) != 0 ? 1 << 12 : 0));
    const auto length = static_cast<std::uint16_t>(from.take<std::uint8_t>() * ((shape & 0x20) != 0 ? 8 : 1));
    std::uint64_t data = from.take<std::uint16_t>();
    if ((shape & 0x80) != 0) data = reinterpret_cast<std::uint64_t>(scratch + data % scratch_bytes);
    command.raw(id, length, data, (shape & 0x40) != 0 ? UVERBS_ATTR_F_MANDATORY : 0);
}

void run_one(reader& from, context& target) {
    const auto object = from.take<std::uint8_t>();
    const auto method = from.take<std::uint8_t>();
    const auto own = [](std::uint8_t value) {
        return static_cast<std::uint16_t>((value & 0x0f) | ((value & 0x80) != 0 ? 1 << 12 : 0) |
                                          ((value & 0x10) != 0 ? 16 : 0));
    };
    testing::ioctl_builder command(own(object), own(method));
    for (int count = from.take<std::uint8_t>() % 20; count > 0; --count) add_attribute(from, command);
    dispatch(target, command.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    guarded::install_fault_handler();
    static nic& adapter = *new nic(settings{}, fabric::create_private());
    const int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    {
        context target(adapter, 0, file);
        reader from(data, size);
        std::memset(scratch, 0, sizeof scratch);
        const std::size_t seeded = std::min<std::size_t>(from.left(), scratch_bytes);
        if (seeded > 0) std::memcpy(scratch, from.at(), seeded);
        for (int count = 0; count < 16 && !from.empty(); ++count) run_one(from, target);
        static std::uint64_t now = 0;
        adapter.progress(now += 1000);
        for (const auto* pipes : {&target.channels, &target.asynchronous_pipes})
            for (const auto& [descriptor, pipe] : *pipes) ::close(descriptor);
    }
    ::close(file);
    return 0;
}
