// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/messages.hpp"

#include <span>
#include <string_view>

namespace accel::examples::serving::wire {

/// A ModelStreamInferResponse, like `make_response`. Its parameter triton_final_response says whether it is the `last`
/// one of its request.
[[nodiscard]] infer_response make_stream_response(const oip::model_description& model, std::string_view id,
                                                  std::span<const oip::output_choice> chosen,
                                                  std::span<const tensor> outputs, std::span<const std::byte> payload,
                                                  bool last);
/// The last one of a request that has no outputs any more.
[[nodiscard]] infer_response empty_stream_response(const oip::model_description& model, std::string_view id);
/// The last one of a request that failed.
[[nodiscard]] infer_response stream_error(std::string_view id, std::string_view sentence);

}  // namespace accel::examples::serving::wire
