// SPDX-License-Identifier: Apache-2.0
// Descriptions of tensors, as kernels read them.
#include "unit/described_slot.hpp"

#include <accel_transport/device/client.hpp>
#include <accel_transport/device/service.hpp>

#include <array>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using described::slot;
using described::some;

/// Both forms, as a kernel reads them.
TEST(kernel_tensors, kernels_read_descriptions) {
    for (const std::uint32_t count : {2U, 20U}) {
        slot sent;
        const auto list = some(count, 2, detail::table_bytes(count));
        ASSERT_EQ(sent.describe(list), status::ok);
        std::array<tensor, max_tensors> out;
        std::uint32_t found = 0;
        device::exchange_ref request;
        request.request = sent.payload().data();
        request.request_bytes = slot::payload_bytes;
        request.generation = slot::generation;
        EXPECT_EQ(device::tensors(request, out.data(), max_tensors, found), status::ok);
        EXPECT_EQ(found, count);
        EXPECT_EQ(device::tensors(request, out.data(), 1, found), status::message_too_large);
        EXPECT_EQ(found, count);
        device::call_ref call;
        EXPECT_EQ(device::tensors(call, out.data(), max_tensors, found), status::invalid_state);
        call.response = sent.payload().data();
        call.response_bytes = slot::payload_bytes;
        call.generation = slot::generation;
        call.outcome = status::ok;
        EXPECT_EQ(device::tensors(call, out.data(), max_tensors, found), status::ok);
        EXPECT_EQ(found, count);
        EXPECT_EQ(out[count - 1].shape[1], 2U);
    }
}

}  // namespace
}  // namespace accel::core
