// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/coding/content_coding.hpp"
#include "serving/doors/counting/memory_budget.hpp"
#include "serving/doors/grpc/cursor.hpp"
#include "serving/doors/grpc/messages.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

namespace accel::examples::serving::doors {

/// The slices of a message, inflated where its client has compressed it.
struct message_slices {
    memory_share inflated;  ///< what they have of the door's memory
    std::vector<::grpc::Slice> slices;
    coding::content_coding coded = coding::content_coding::identity;
};

/// gRPC would inflate a message without a limit, so the door has forbidden it and does it itself. gRPC does not say how
/// a message is compressed, but no message of the protocol begins as gzip and zlib do. `message_too_large`: it is
/// longer than `limit` once it is inflated; `overloaded`: `memory` has no room for it; `invalid_argument`: it is cut,
/// or other bytes follow.
[[nodiscard]] result<message_slices> slices_of(const ::grpc::ByteBuffer& message, std::size_t limit,
                                               const std::shared_ptr<memory_budget>& memory);

/// Where slices lie.
[[nodiscard]] std::vector<wire::slice> places_of(std::span<const ::grpc::Slice> slices);

/// A question that is a name, and maybe a version: `slices_of` and `wire::read_named_message`.
[[nodiscard]] result<wire::named_message> read_names(const ::grpc::ByteBuffer& message, std::size_t limit,
                                                     const std::shared_ptr<memory_budget>& memory);

/// Has the answers of a call compressed as its client's messages are.
void compress_answers(::grpc::GenericCallbackServerContext& of, coding::content_coding how);

}  // namespace accel::examples::serving::doors
