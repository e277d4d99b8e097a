// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel {

class client_interceptor;
class server_interceptor;

/// Reads bytes as options in URIs write them: "4096", "64KiB", "1.5GiB". The units are K, M, G and T, powers of 1024,
/// with or without "iB". `invalid_argument` with a sentence for other text, for more than `std::size_t` holds, and for
/// a fraction of a byte.
[[nodiscard]] ACCEL_API result<std::size_t> parse_size(std::string_view text);
/// Reads a duration likewise: "20us", "500ms", "1.5s". The units are ns, us, ms, s, m (minutes) and h; there is no
/// default. Not negative.
[[nodiscard]] ACCEL_API result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// How a thread waits: spin forever, spin for `spin` and then sleep, or sleep at once.
enum class poll_mode : std::uint8_t { busy, adaptive, block };

/// Which work a GPU runs first when several streams have work.
enum class stream_priority : std::uint8_t { normal, high };

/// Whether the data path is encrypted. With keys or certificates, the control plane is always encrypted.
enum class encryption : std::uint8_t {
    automatic,  ///< URI `auto`: with keys, `tcp` and `zmq` encrypt, and `auto://` skips transports that cannot encrypt
    required,   ///< transports that cannot encrypt are refused
    off,        ///< `tcp` sends plain bytes, and `auto://` may choose any transport
};

/// Which peers may connect (docs/security.md). Choose one of three:
/// - pinned Ed25519 keys, made by `accel_keys`: `key_file` with `server_key` (client) or `authorized_keys` (server);
/// - certificates: `cert_file`, `key_file` and `ca_file`;
/// - `insecure`.
/// A client with `server_key` or `ca_file` alone is anonymous; only servers with `anonymous` let it in.
struct security_options {
    std::string key_file{};         ///< URI `key_file`: this end's private key (PEM), mode 0600
    std::string server_key{};       ///< URI `server_key`: client; the server's public key, `ed25519:…`, or a file
    std::string authorized_keys{};  ///< URI `authorized_keys`: server; file of public keys, one per line
    std::string cert_file{};  ///< URI `cert_file`: this end's certificate and the intermediates up to `ca_file` (PEM)
    std::string ca_file{};    ///< URI `ca_file`: authorities that sign the peers' certificates, and their CRLs (PEM)
    /// URI `server_name`: client; the name that the server's certificate must have. Empty: the URI's host, also with
    /// `dns+`
    std::string server_name{};
    /// URI `anonymous`: server; clients without a key or certificate are let in too. With it, `authorized_keys` and
    /// `ca_file` are optional. A client that shows a key or certificate which the server does not trust is refused.
    bool anonymous = false;
    encryption encrypt = encryption::automatic;  ///< URI `encrypt`: auto, required or off
    bool insecure = false;                       ///< URI `insecure`: no keys and no encryption; never a default
};

/// Which RDMA port `rdma` uses, and how long the device retries. The defaults suit a single network.
struct verbs_options {
    std::string device{};   ///< URI `device`: NAME or NAME:PORT, such as mlx5_0:1; empty: the first active port
    int gid_index = -1;     ///< URI `gid_index`: in the port's table; -1: RoCE v2, with an IPv4 address if there is one
    std::uint32_t mtu = 0;  ///< URI `mtu`: 256 to 4096 bytes; 0: the port's MTU
    /// URI `ack_timeout`: how long the device waits for an acknowledgement before it retransmits.
    std::chrono::nanoseconds ack_timeout = std::chrono::milliseconds{67};
    /// URI `ack_retries`: retransmissions before the peer counts as lost, 0 to 6. (7 means forever on some devices.)
    std::uint32_t ack_retries = 6;
    /// URI `direct`: mlx5 only; the library writes work requests and reads completions in the device's queues itself,
    /// without the driver's library. Other devices always go through libibverbs.
    bool direct = true;
};

/// A bit rate on a wire. In a URI: 200Mb/s, 25Gb/s; 0: no limit.
struct bit_rate {
    std::uint64_t bits_per_second = 0;
    friend constexpr bool operator==(bit_rate, bit_rate) noexcept = default;
};

/// Options of a channel. Each field but `interceptors` is also a URI key of the same name; the URI overrides the code.
/// URIs write durations and sizes as `parse_duration` and `parse_size` read them: 500ms, 64KiB.
struct channel_options {
    std::uint32_t slots = 8;               ///< most calls in flight; 1 to 65,536
    std::size_t request_bytes = 1 << 20;   ///< longest request; at most 1 GiB
    std::size_t response_bytes = 1 << 20;  ///< longest response; at most 1 GiB
    /// A port that refuses connections is retried for half a second only.
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds{5};
    /// How long the first connect is retried, for example until the server has started. Pauses between tries:
    /// `backoff_min` to `backoff_max`. Each try may take `connect_timeout`. 0: one try.
    std::chrono::nanoseconds connect_retry{};
    std::chrono::nanoseconds call_timeout = std::chrono::seconds{10};  ///< used when `submit` names no timeout
    /// How long a slot may wait for the late answer of a call that timed out or was cancelled; 0: four times
    /// `call_timeout`. When no slot is free and a slot has waited longer than this, the session is replaced once the
    /// calls in flight have ended, if it can be (with `reconnect`, or in a pool). Other sessions end with `peer_lost`
    /// once every slot waits. Not used by `gpu_channel`.
    std::chrono::nanoseconds quarantine_timeout{};
    std::chrono::nanoseconds close_timeout = std::chrono::seconds{1};
    /// How long the peer may be silent before it counts as lost, and how long a server may hold lent memory after the
    /// call has ended.
    std::chrono::nanoseconds peer_timeout = std::chrono::milliseconds{500};
    poll_mode poll = poll_mode::adaptive;
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};  ///< of `poll_mode::adaptive`
    /// A hint: a server whose memory is on a GPU serves this channel's requests first.
    stream_priority priority = stream_priority::normal;
    bool reconnect = false;  ///< connect again after the server is lost or stops; calls in flight still fail
    /// Pauses between tries to reconnect; each pause is twice the last one. The pauses start again from `backoff_min`
    /// after a session has lived for `backoff_max`, so a server that accepts and disconnects at once is not asked more
    /// often than a server that refuses.
    std::chrono::nanoseconds backoff_min = std::chrono::milliseconds{50};
    std::chrono::nanoseconds backoff_max = std::chrono::seconds{5};
    bool zerocopy = false;  ///< tcp: MSG_ZEROCOPY for large payloads
    /// tcp, zmq: limits what this end sends (SO_MAX_PACING_RATE of its data connection); 0: no limit. Other schemes
    /// fail with `unsupported`.
    bit_rate pacing{};
    verbs_options verbs{};
    security_options security{};
    /// See all calls; no null pointers. `gpu_channel`: `unsupported`.
    std::vector<std::shared_ptr<client_interceptor>> interceptors{};
};

/// Options of a server. Each field but `interceptors` is also a URI key. Keys of all listened URIs count for the whole
/// server; two URIs that disagree are an error.
struct server_options {
    std::uint32_t workers = 1;  ///< serving threads; 0: the application calls `server::poll` itself
    /// File descriptors can lower this limit: tcp and zmq use one per session, shm two until the client has mapped its
    /// segment. All sessions together may use half of the process's descriptors (`ulimit -n`), and the sessions of one
    /// client three quarters of that half.
    std::uint32_t max_sessions = 1024;
    std::uint32_t max_slots = 256;              ///< per session
    std::size_t max_request_bytes = 64 << 20;   ///< longest request that a client may ask for
    std::size_t max_response_bytes = 64 << 20;  ///< longest response that a client may ask for
    /// Memory for the slots of all sessions; enough for `max_sessions` channels with default options. A slot takes
    /// memory on first use; slots of rdma and pinned slots take it when their session opens.
    std::size_t max_memory_bytes = std::size_t{20} << 30;
    std::uint32_t max_exchanges = 4096;  ///< open at once per worker; further requests get `overloaded`
    /// Limits per client, so that one client cannot starve the others. A client is a key or the name of a certificate;
    /// anonymous clients count by their address, and so do all where there are no keys. 0: three quarters of the
    /// server's limit; with `gpu_service` the whole limit.
    std::uint32_t max_client_sessions = 0;
    std::size_t max_client_memory_bytes = 0;
    std::uint32_t max_connections = 4096;      ///< control connections at once; fewer if descriptors are scarce
    std::uint32_t max_client_connections = 0;  ///< per client; 0: three quarters of `max_connections`
    /// Handshakes per address: a burst of this size, then this many per second.
    std::uint32_t max_handshakes = 1024;
    memory_kind memory = memory_kind::host();  ///< where handlers find requests and write responses
    /// With GPU `memory`: requests processed at once per worker. Further requests queue until their deadlines. More
    /// than 8 streams in a process wait for each other unless CUDA_DEVICE_MAX_CONNECTIONS is set (up to 32).
    std::uint32_t streams = 8;
    std::uint32_t priority_streams = 2;  ///< additional streams, for channels of high priority
    /// One stream per session, which keeps its requests in order, instead of any free stream per request.
    bool stream_per_session = false;
    /// Locks slots in host memory into RAM, so that the GPU copies them fast and without a thread's help.
    bool pin_slots = true;
    std::chrono::nanoseconds peer_timeout = std::chrono::milliseconds{500};
    std::chrono::nanoseconds drain_timeout = std::chrono::seconds{2};  ///< for `stop` and the destructor
    poll_mode poll = poll_mode::adaptive;
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};
    std::uint16_t data_port = 0;  ///< zmq: first port of the data path, one per worker; 0: the URI's port + 1
    bool zerocopy = false;        ///< tcp: MSG_ZEROCOPY for large payloads
    /// tcp, zmq: limits what the server sends to each client (SO_MAX_PACING_RATE of each data connection); 0: no limit.
    /// A server that also listens on another scheme fails with `unsupported`.
    bit_rate pacing{};
    verbs_options verbs{};
    security_options security{};
    /// See all requests that a handler gets; no null pointers. `gpu_service`: `unsupported`.
    std::vector<std::shared_ptr<server_interceptor>> interceptors{};
};

}  // namespace accel
