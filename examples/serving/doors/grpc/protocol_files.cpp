// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/protocol_files.hpp"

#include <string>

namespace accel::examples::serving::wire {
namespace {

std::vector<described_method> inference_methods() {
    return {
        {"ServerLive", "ServerLiveRequest", "ServerLiveResponse"},
        {"ServerReady", "ServerReadyRequest", "ServerReadyResponse"},
        {"ModelReady", "ModelReadyRequest", "ModelReadyResponse"},
        {"ServerMetadata", "ServerMetadataRequest", "ServerMetadataResponse"},
        {"ModelMetadata", "ModelMetadataRequest", "ModelMetadataResponse"},
        {"ModelInfer", "ModelInferRequest", "ModelInferResponse"},
        {"ModelStreamInfer", "ModelInferRequest", "ModelStreamInferResponse", true, true},
        {"ModelConfig", "ModelConfigRequest", "ModelConfigResponse"},
        {"ModelStatistics", "ModelStatisticsRequest", "ModelStatisticsResponse"},
        {"SystemSharedMemoryStatus", "SystemSharedMemoryStatusRequest", "SystemSharedMemoryStatusResponse"},
        {"SystemSharedMemoryRegister", "SystemSharedMemoryRegisterRequest", "SystemSharedMemoryRegisterResponse"},
        {"SystemSharedMemoryUnregister", "SystemSharedMemoryUnregisterRequest", "SystemSharedMemoryUnregisterResponse"},
        {"CudaSharedMemoryStatus", "CudaSharedMemoryStatusRequest", "CudaSharedMemoryStatusResponse"},
        {"CudaSharedMemoryRegister", "CudaSharedMemoryRegisterRequest", "CudaSharedMemoryRegisterResponse"},
        {"CudaSharedMemoryUnregister", "CudaSharedMemoryUnregisterRequest", "CudaSharedMemoryUnregisterResponse"},
    };
}

void add(std::vector<described_message>& to, std::vector<described_message> more) {
    to.insert(to.end(), more.begin(), more.end());
}

std::vector<described_message> server_messages() {
    return {
        {"ServerLiveRequest", {}},
        {"ServerLiveResponse", {{1, "live", "bool"}}},
        {"ServerReadyRequest", {}},
        {"ServerReadyResponse", {{1, "ready", "bool"}}},
        {"ServerMetadataRequest", {}},
        {"ServerMetadataResponse",
         {{1, "name", "string"}, {2, "version", "string"}, {3, "extensions", "repeated string"}}},
    };
}

std::vector<described_message> model_messages() {
    const std::vector<described_field> of_model{{1, "name", "string"}, {2, "version", "string"}};
    return {
        {"ModelReadyRequest", of_model},
        {"ModelReadyResponse", {{1, "ready", "bool"}}},
        {"ModelMetadataRequest", of_model},
        {"ModelMetadataResponse",
         {{1, "name", "string"},
          {2, "versions", "repeated string"},
          {3, "platform", "string"},
          {4, "inputs", "repeated ModelMetadataResponse.TensorMetadata"},
          {5, "outputs", "repeated ModelMetadataResponse.TensorMetadata"}}},
        {"ModelMetadataResponse.TensorMetadata",
         {{1, "name", "string"}, {2, "datatype", "string"}, {3, "shape", "repeated int64"}}},
        {"ModelConfigRequest", of_model},
        {"ModelConfigResponse", {{1, "config", "ModelConfig"}}},
        {"ModelConfig",
         {{1, "name", "string"},
          {2, "platform", "string"},
          {5, "input", "repeated ModelInput"},
          {6, "output", "repeated ModelOutput"},
          {17, "backend", "string"},
          {19, "model_transaction_policy", "ModelTransactionPolicy"}}},
        {"ModelInput", {{1, "name", "string"}, {2, "data_type", "DataType"}, {4, "dims", "repeated int64"}}},
        {"ModelOutput", {{1, "name", "string"}, {2, "data_type", "DataType"}, {3, "dims", "repeated int64"}}},
        {"ModelTransactionPolicy", {{1, "decoupled", "bool"}}},
        {"ModelStatisticsRequest", of_model},
        {"ModelStatisticsResponse", {{1, "model_stats", "repeated ModelStatistics"}}},
        {"ModelStatistics",
         {{1, "name", "string"},
          {2, "version", "string"},
          {3, "last_inference", "uint64"},
          {4, "inference_count", "uint64"},
          {5, "execution_count", "uint64"},
          {6, "inference_stats", "InferStatistics"}}},
        {"InferStatistics",
         {{1, "success", "StatisticDuration"},
          {2, "fail", "StatisticDuration"},
          {3, "queue", "StatisticDuration"},
          {4, "compute_input", "StatisticDuration"},
          {5, "compute_infer", "StatisticDuration"},
          {6, "compute_output", "StatisticDuration"}}},
        {"StatisticDuration", {{1, "count", "uint64"}, {2, "ns", "uint64"}}},
    };
}

std::vector<described_message> infer_messages() {
    return {
        {"InferParameter",
         {{1, "bool_param", "oneof bool"},
          {2, "int64_param", "oneof int64"},
          {3, "string_param", "oneof string"},
          {4, "double_param", "oneof double"},
          {5, "uint64_param", "oneof uint64"}},
         "parameter_choice"},
        {"InferTensorContents",
         {{1, "bool_contents", "repeated bool"},
          {2, "int_contents", "repeated int32"},
          {3, "int64_contents", "repeated int64"},
          {4, "uint_contents", "repeated uint32"},
          {5, "uint64_contents", "repeated uint64"},
          {6, "fp32_contents", "repeated float"},
          {7, "fp64_contents", "repeated double"},
          {8, "bytes_contents", "repeated bytes"}}},
        {"ModelInferRequest",
         {{1, "model_name", "string"},
          {2, "model_version", "string"},
          {3, "id", "string"},
          {4, "parameters", "map<string, InferParameter>"},
          {5, "inputs", "repeated ModelInferRequest.InferInputTensor"},
          {6, "outputs", "repeated ModelInferRequest.InferRequestedOutputTensor"},
          {7, "raw_input_contents", "repeated bytes"}}},
        {"ModelInferRequest.InferInputTensor",
         {{1, "name", "string"},
          {2, "datatype", "string"},
          {3, "shape", "repeated int64"},
          {4, "parameters", "map<string, InferParameter>"},
          {5, "contents", "InferTensorContents"}}},
        {"ModelInferRequest.InferRequestedOutputTensor",
         {{1, "name", "string"}, {2, "parameters", "map<string, InferParameter>"}}},
        {"ModelInferResponse",
         {{1, "model_name", "string"},
          {2, "model_version", "string"},
          {3, "id", "string"},
          {4, "parameters", "map<string, InferParameter>"},
          {5, "outputs", "repeated ModelInferResponse.InferOutputTensor"},
          {6, "raw_output_contents", "repeated bytes"}}},
        {"ModelInferResponse.InferOutputTensor",
         {{1, "name", "string"},
          {2, "datatype", "string"},
          {3, "shape", "repeated int64"},
          {4, "parameters", "map<string, InferParameter>"}}},
        {"ModelStreamInferResponse", {{1, "error_message", "string"}, {2, "infer_response", "ModelInferResponse"}}},
    };
}

std::vector<described_message> region_messages() {
    return {
        {"SystemSharedMemoryStatusRequest", {{1, "name", "string"}}},
        {"SystemSharedMemoryStatusResponse",
         {{1, "regions", "map<string, SystemSharedMemoryStatusResponse.RegionStatus>"}}},
        {"SystemSharedMemoryStatusResponse.RegionStatus",
         {{1, "name", "string"}, {2, "key", "string"}, {3, "offset", "uint64"}, {4, "byte_size", "uint64"}}},
        {"SystemSharedMemoryRegisterRequest",
         {{1, "name", "string"}, {2, "key", "string"}, {3, "offset", "uint64"}, {4, "byte_size", "uint64"}}},
        {"SystemSharedMemoryRegisterResponse", {}},
        {"SystemSharedMemoryUnregisterRequest", {{1, "name", "string"}}},
        {"SystemSharedMemoryUnregisterResponse", {}},
        {"CudaSharedMemoryStatusRequest", {{1, "name", "string"}}},
        {"CudaSharedMemoryStatusResponse",
         {{1, "regions", "map<string, CudaSharedMemoryStatusResponse.RegionStatus>"}}},
        {"CudaSharedMemoryStatusResponse.RegionStatus",
         {{1, "name", "string"}, {2, "device_id", "uint64"}, {3, "byte_size", "uint64"}}},
        {"CudaSharedMemoryRegisterRequest",
         {{1, "name", "string"}, {2, "raw_handle", "bytes"}, {3, "device_id", "int64"}, {4, "byte_size", "uint64"}}},
        {"CudaSharedMemoryRegisterResponse", {}},
        {"CudaSharedMemoryUnregisterRequest", {{1, "name", "string"}}},
        {"CudaSharedMemoryUnregisterResponse", {}},
    };
}

/// The Open Inference Protocol, with Triton's extensions.
described_file inference_file() {
    described_file out{"grpc_service.proto", "inference", "GRPCInferenceService", inference_methods(), {}};
    for (const auto& part : {server_messages(), model_messages(), infer_messages(), region_messages()})
        add(out.messages, part);
    out.enums.push_back({"DataType",
                         {"TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
                          "TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64",
                          "TYPE_STRING", "TYPE_BF16"}});
    return out;
}

described_file health_file() {
    return {
        .name = "grpc/health/v1/health.proto",
        .package = "grpc.health.v1",
        .service = "Health",
        .methods = {{"Check", "HealthCheckRequest", "HealthCheckResponse"},
                    {"Watch", "HealthCheckRequest", "HealthCheckResponse", false, true}},
        .messages = {{"HealthCheckRequest", {{1, "service", "string"}}},
                     {"HealthCheckResponse", {{1, "status", "HealthCheckResponse.ServingStatus"}}}},
        .enums = {{"HealthCheckResponse.ServingStatus", {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}}},
    };
}

/// The versions have the same messages.
described_file reflection_file(const std::string& version) {
    return {
        .name = "grpc/reflection/" + version + "/reflection.proto",
        .package = "grpc.reflection." + version,
        .service = "ServerReflection",
        .methods = {{"ServerReflectionInfo", "ServerReflectionRequest", "ServerReflectionResponse", true, true}},
        .messages = {{"ServerReflectionRequest",
                      {{1, "host", "string"},
                       {3, "file_by_filename", "oneof string"},
                       {4, "file_containing_symbol", "oneof string"},
                       {5, "file_containing_extension", "oneof ExtensionRequest"},
                       {6, "all_extension_numbers_of_type", "oneof string"},
                       {7, "list_services", "oneof string"}},
                      "message_request"},
                     {"ExtensionRequest", {{1, "containing_type", "string"}, {2, "extension_number", "int32"}}},
                     {"ServerReflectionResponse",
                      {{1, "valid_host", "string"},
                       {2, "original_request", "ServerReflectionRequest"},
                       {4, "file_descriptor_response", "oneof FileDescriptorResponse"},
                       {5, "all_extension_numbers_response", "oneof ExtensionNumberResponse"},
                       {6, "list_services_response", "oneof ListServiceResponse"},
                       {7, "error_response", "oneof ErrorResponse"}},
                      "message_response"},
                     {"FileDescriptorResponse", {{1, "file_descriptor_proto", "repeated bytes"}}},
                     {"ExtensionNumberResponse",
                      {{1, "base_type_name", "string"}, {2, "extension_number", "repeated int32"}}},
                     {"ListServiceResponse", {{1, "service", "repeated ServiceResponse"}}},
                     {"ServiceResponse", {{1, "name", "string"}}},
                     {"ErrorResponse", {{1, "error_code", "int32"}, {2, "error_message", "string"}}}},
    };
}

}  // namespace

std::vector<described_file> protocol_files() {
    return {inference_file(), health_file(), reflection_file("v1"), reflection_file("v1alpha")};
}

}  // namespace accel::examples::serving::wire
