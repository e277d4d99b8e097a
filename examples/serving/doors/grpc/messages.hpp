// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::wire {

/// What gRPC calls this status: the number of its code.
[[nodiscard]] int grpc_status_of(status what) noexcept;

/// Requests that name a model, and nothing else: ModelReady, ModelMetadata, ModelConfig, ModelStatistics. Of a
/// HealthCheckRequest `name` is the service.
struct named_message {
    std::string name;
    std::string version;
};
[[nodiscard]] result<named_message> read_named_message(std::span<const slice> slices);

/// ServerLiveResponse, ServerReadyResponse, ModelReadyResponse.
[[nodiscard]] std::string yes_or_no(bool yes);
/// ServingStatus of grpc.health.v1; the last one is for a Watch alone.
enum class health_state : std::uint8_t { serving = 1, not_serving = 2, unknown_service = 3 };
/// HealthCheckResponse.
[[nodiscard]] std::string health(health_state what);
/// ServerMetadataResponse, ModelMetadataResponse, ModelConfigResponse and ModelStatisticsResponse, which say what the
/// JSON documents of oip/documents.hpp say.
[[nodiscard]] std::string server_metadata_message(std::string_view version, const oip::allowed_memory& allowed);
[[nodiscard]] std::string model_metadata_message(const oip::model_description& model);
[[nodiscard]] std::string model_configuration_message(const oip::model_description& model);
[[nodiscard]] std::string model_statistics_message(std::span<const oip::counted_model> models);

/// The first fields of a ModelInferResponse. `last`: what its parameter triton_final_response says; nothing: it has
/// none.
[[nodiscard]] writer response_head(std::string_view model, std::string_view id, std::optional<bool> last);

/// A ModelInferResponse: `heads[0] tensors[0] heads[1] tensors[1] …`, each head and tensor one behind the other.
struct infer_response {
    std::vector<std::string> heads;  ///< one for each tensor, and at least one
    std::vector<std::span<const std::byte>> tensors;
};
/// `outputs` as `oip::answered_tensors` gave them. The tensors are parts of `payload`, which has to outlive the result.
[[nodiscard]] infer_response make_response(const oip::model_description& model, std::string_view id,
                                           std::span<const oip::output_choice> chosen, std::span<const tensor> outputs,
                                           std::span<const std::byte> payload, std::optional<bool> last = {});

}  // namespace accel::examples::serving::wire
