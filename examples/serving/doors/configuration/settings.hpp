// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::examples::serving::doors {

/// Most unread parts that a call of a door asks for.
inline constexpr std::uint32_t max_parts = 16;

/// Limits of a door towards its clients. Each wait for a client has one.
struct door_settings {
    std::size_t max_connections = 1024;                    ///< a further one takes the place of the longest idle one
    std::size_t max_address_connections = 0;               ///< of one client's address; 0: half of `max_connections`
    std::size_t max_calls = 1024;                          ///< of gRPC; further ones are refused
    std::size_t max_model_requests = 1024;                 ///< of a model, at each door; further ones are refused
    std::size_t max_json_bytes = std::size_t{16} << 20;    ///< of one request
    std::size_t max_json_memory = std::size_t{256} << 20;  ///< JSON and inflated messages of all requests
    std::size_t max_grpc_memory = std::size_t{1} << 30;    ///< of gRPC's buffers
    std::chrono::milliseconds idle_timeout{60'000};        ///< between requests
    std::chrono::milliseconds handshake_timeout{10'000};   ///< of TLS
    std::chrono::milliseconds head_timeout{10'000};  ///< for the HTTP header; of the first one from the connection on
    std::chrono::milliseconds body_timeout{10'000};  ///< for the JSON, and once more for the tensors in a slot
    std::size_t body_rate = std::size_t{16} << 10;   ///< bytes a second, in each `body_grace`; 0: any
    std::chrono::milliseconds body_grace{2'000};
    std::chrono::milliseconds slot_timeout{5'000};        ///< for a free slot
    std::chrono::milliseconds write_timeout{10'000};      ///< for the client to take an answer, which holds a slot
    std::chrono::milliseconds part_timeout{10'000};       ///< for the next part, while the client reads
    std::chrono::milliseconds stream_timeout{600'000};    ///< for the next request of a stream of gRPC's
    std::size_t stream_parts = 4;                         ///< unread parts of an answer; each holds a slot
    std::size_t stream_requests = 8;                      ///< at once, of one stream of gRPC's
    std::chrono::milliseconds ping_interval{5'000};       ///< of gRPC's clients, at least
    std::chrono::milliseconds keepalive_time{60'000};     ///< of silence, until the door pings a client of gRPC's
    std::chrono::milliseconds keepalive_timeout{20'000};  ///< for its answer
    std::chrono::milliseconds drain_delay{0};             ///< of a shutdown: not ready, but open
    std::chrono::milliseconds drain_timeout{10'000};      ///< of a shutdown
    std::vector<std::string> passed_headers{};            ///< that are metadata (`add_passed_name`)
};

/// How many connections one client's address may have.
[[nodiscard]] inline std::size_t most_of_an_address(const door_settings& of) {
    if (of.max_address_connections > 0) return of.max_address_connections;
    return of.max_connections < 2 ? 1 : of.max_connections / 2;
}

}  // namespace accel::examples::serving::doors
