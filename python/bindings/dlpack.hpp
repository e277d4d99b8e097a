// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/tensor.hpp>

#include <cstdint>

/// The structures of DLPack 1.1 (https://github.com/dmlc/dlpack, include/dlpack/dlpack.h), by their layout.
namespace accel::python::dlpack {

inline constexpr std::int32_t cpu = 1;
inline constexpr std::int32_t cuda = 2;
inline constexpr std::int32_t cuda_host = 3;
inline constexpr std::uint64_t read_only = 1;
inline constexpr std::uint64_t padded = 4;  ///< elements of less than a byte have one each

struct device {
    std::int32_t type = cpu;
    std::int32_t ordinal = 0;
};

struct tensor {
    void* data = nullptr;
    dlpack::device device;
    std::int32_t rank = 0;
    data_type type;
    std::int64_t* shape = nullptr;
    std::int64_t* strides = nullptr;  ///< in elements; null: row-major, without gaps
    std::uint64_t byte_offset = 0;
};

struct managed {
    dlpack::tensor content;
    void* context = nullptr;
    void (*deleter)(managed* self) = nullptr;
};

struct managed_versioned {
    std::uint32_t major = 1;
    std::uint32_t minor = 1;
    void* context = nullptr;
    void (*deleter)(managed_versioned* self) = nullptr;
    std::uint64_t flags = 0;
    dlpack::tensor content;
};

inline constexpr const char* capsule = "dltensor";
inline constexpr const char* capsule_versioned = "dltensor_versioned";
inline constexpr const char* used_capsule = "used_dltensor";
inline constexpr const char* used_capsule_versioned = "used_dltensor_versioned";

}  // namespace accel::python::dlpack
