// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// Completion queue elements as libmlx5 reads them.
namespace accel::softnic {

inline constexpr std::size_t cqe_bytes = 64;

/// Syndromes of an error CQE; values as in infiniband/mlx5dv.h.
enum class syndrome : std::uint8_t {
    none = 0,
    local_length = 0x01,
    local_qp_operation = 0x02,
    local_protection = 0x04,
    flushed = 0x05,
    window_bind = 0x06,
    bad_response = 0x10,
    local_access = 0x11,
    remote_invalid_request = 0x12,
    remote_access = 0x13,
    remote_operation = 0x14,
    transport_retry_exceeded = 0x15,
    rnr_retry_exceeded = 0x16,
    remote_aborted = 0x22,
};

/// The second opinion in an error CQE. Values below 0xe0 are those seen from ConnectX devices for the same
/// cause; the ones from 0xe0 up are softnic's own.
enum class vendor_syndrome : std::uint8_t {
    none = 0,
    local_length = 0x32,
    local_key = 0x51,
    local_operation = 0x68,
    transport_retry = 0x81,
    rnr_retry = 0x87,
    remote_access = 0x88,
    remote_invalid_request = 0x89,
    remote_operation = 0x8a,
    flushed = 0xf9,
    injected = 0xe0,
    memory_fault = 0xe1,       ///< the key was valid, the memory behind it was gone
    malformed_wqe = 0xe2,      ///< decode_send refused it
    late_wqe = 0xe3,           ///< strict mode: changed between its doorbell and its execution
    queue_unreachable = 0xe4,  ///< the work queue itself is not mapped any more
    window_refused = 0xe5,     ///< window::outcome says why
};

/// What went wrong with a work request.
struct failure {
    syndrome error = syndrome::none;
    vendor_syndrome vendor = vendor_syndrome::none;

    explicit operator bool() const { return error != syndrome::none; }
};

/// What every completion says.
struct completion {
    std::uint32_t qpn = 0;
    std::uint32_t user_index = 0;  ///< uidx of the queue pair, also for receives from an SRQ
    std::uint16_t wqe_counter = 0;
    std::uint8_t opcode = 0;  ///< mlx5 opcode of the send WQE; 0 for receives
    std::uint32_t byte_count = 0;

    // Receives only.
    std::uint32_t immediate = 0;  ///< big-endian, as it came
    std::uint32_t source_qpn = 0;
    std::uint16_t source_lid = 0;
    std::uint8_t service_level = 0;
    bool has_grh = false;
    bool solicited = false;

    // Errors only.
    syndrome error = syndrome::none;
    vendor_syndrome vendor = vendor_syndrome::none;
};

/// `kind` is the CQE opcode (MLX5_CQE_*), owner the bit that says which turn of the ring this is.
[[nodiscard]] std::array<std::byte, cqe_bytes> encode_cqe(const completion& what, std::uint8_t kind, bool owner,
                                                          std::uint64_t timestamp);

}  // namespace accel::softnic
