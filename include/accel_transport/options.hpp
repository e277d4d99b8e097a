// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/memory.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace accel {

/// How a thread waits: spin for ever, spin for `spin` and then sleep, or sleep at once.
enum class poll_mode : std::uint8_t { busy, adaptive, block };

/// The work that a GPU prefers where it has a choice.
enum class stream_priority : std::uint8_t { normal, high };

/// Whether bytes are encrypted on the data path. The control plane is encrypted wherever there are keys.
enum class encryption : std::uint8_t {
    automatic,  ///< URI `auto`: with keys `tcp` and `zmq` encrypt; `auto://` takes nothing that cannot
    required,   ///< a transport that cannot encrypt is refused
    off,        ///< `tcp` sends plain bytes, and `auto://` may take any transport
};

/// The peers that may connect (docs/security.md). Either pinned Ed25519 keys, which `accel_keys` makes: `key_file` with
/// `server_key` (client) or `authorized_keys` (server). Or certificates: `cert_file`, `key_file` and
/// `ca_file`. Or `insecure`.
struct security_options {
    std::string key_file{};         ///< URI `key_file`: this end's private key (PEM), mode 0600
    std::string server_key{};       ///< URI `server_key`: client; the server's public key, `ed25519:…` or a file
    std::string authorized_keys{};  ///< URI `authorized_keys`: server; file of public keys, one a line
    std::string cert_file{};  ///< URI `cert_file`: this end's certificate (PEM), and those between it and ca_file's
    std::string ca_file{};    ///< URI `ca_file`: authorities that sign the peers' certificates, and their CRLs (PEM)
    encryption encrypt = encryption::automatic;  ///< URI `encrypt`: auto, required or off
    bool insecure = false;  ///< URI `insecure`: no keys, no encryption; has to be asked for by name
};

/// Which RDMA port `rdma` uses, and how patient its hardware is. The defaults suit one network.
struct verbs_options {
    std::string device{};   ///< URI `device`: NAME or NAME:PORT, as in mlx5_0:1; empty: the first that is up
    int gid_index = -1;     ///< URI `gid_index`: of the port's table; -1: RoCE v2, with an IPv4 address if any
    std::uint32_t mtu = 0;  ///< URI `mtu`: 256 to 4096 bytes; 0: the port's
    /// URI `ack_timeout`: how long the device waits for an acknowledgement before it sends again.
    std::chrono::nanoseconds ack_timeout = std::chrono::milliseconds{67};
    /// URI `ack_retries`: how often it does, 0 to 6, before the peer is lost. (7 is for ever on some devices.)
    std::uint32_t ack_retries = 6;
    /// URI `direct`: on mlx5 devices, write work requests and read completions where the device does, not by
    /// way of its driver's library. Other devices are always used by way of libibverbs.
    bool direct = true;
};

/// A rate of bits on a wire. In a URI: 200Mb/s, 25Gb/s; 0 is none.
struct bit_rate {
    std::uint64_t bits_per_second = 0;
    friend constexpr bool operator==(bit_rate, bit_rate) noexcept = default;
};

/// Options of a channel. Each is also a URI key of the same name; the URI wins over the code.
/// Durations in URIs take a unit: 500ms, 2s, 20us. Sizes take K, M, G: 64K, 1M.
struct channel_options {
    std::uint32_t slots = 8;               ///< calls in flight at most; 1 … 65,536
    std::size_t request_bytes = 1 << 20;   ///< longest request; at most 1 GiB
    std::size_t response_bytes = 1 << 20;  ///< longest response; at most 1 GiB
    /// A port that refuses connections is given up after half a second.
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds{5};
    /// How long the first connect is tried again, with `backoff_min` to `backoff_max` between tries: a server that
    /// starts later, say. Each try has `connect_timeout`. 0: one try.
    std::chrono::nanoseconds connect_retry{};
    std::chrono::nanoseconds call_timeout = std::chrono::seconds{10};  ///< when submit names none
    /// How long a slot may wait for the answer of a call that has timed out or was cancelled; 0: four times
    /// `call_timeout`. When no slot is free and one waits for longer, a session that can be replaced (with `reconnect`,
    /// or in a pool) is replaced after the calls in flight. Any other session ends with `peer_lost` once every slot
    /// waits. Not used by `gpu_channel`.
    std::chrono::nanoseconds quarantine_timeout{};
    std::chrono::nanoseconds close_timeout = std::chrono::seconds{1};
    /// Silence that means lost; and how long a server may hold lent memory after its call has ended.
    std::chrono::nanoseconds peer_timeout = std::chrono::milliseconds{500};
    poll_mode poll = poll_mode::adaptive;
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};  ///< of `poll_mode::adaptive`
    /// A wish: on a server whose memory is a GPU's, this channel's requests go first.
    stream_priority priority = stream_priority::normal;
    bool reconnect = false;  ///< connect again after a loss or a stop; calls in flight still end with it
    /// The pauses before tries to connect again, each twice the last one. They begin anew once a session has lived for
    /// `backoff_max`: a server that accepts and leaves at once is not asked faster than one that refuses.
    std::chrono::nanoseconds backoff_min = std::chrono::milliseconds{50};
    std::chrono::nanoseconds backoff_max = std::chrono::seconds{5};
    bool zerocopy = false;  ///< tcp: MSG_ZEROCOPY for large payloads
    /// tcp, zmq: what this end sends is no faster than this (SO_MAX_PACING_RATE of its data connection); 0: as fast
    /// as it can. `unsupported` for other schemes.
    bit_rate pacing{};
    verbs_options verbs{};
    security_options security{};
};

/// Options of a server. Each is also a URI key; when several URIs are listened on, all of them count for the
/// whole server, and two that disagree are an error.
struct server_options {
    std::uint32_t workers = 1;  ///< threads that serve; 0: the application calls `server::poll` itself
    /// Fewer where descriptors are few: tcp and zmq take one for a session, shm two until its client has mapped it, and
    /// all sessions together have half of the process's (`ulimit -n`), those of one client three quarters of that.
    std::uint32_t max_sessions = 1024;
    std::uint32_t max_slots = 256;              ///< a session
    std::size_t max_request_bytes = 64 << 20;   ///< longest request a client may ask for
    std::size_t max_response_bytes = 64 << 20;  ///< longest response a client may ask for
    /// Slots of all sessions together; enough for `max_sessions` channels with default options. Slots take
    /// memory when they are first used, but those of rdma and of pinned slots when their session opens.
    std::size_t max_memory_bytes = std::size_t{20} << 30;
    std::uint32_t max_exchanges = 4096;  ///< open at once, a worker; beyond it `overloaded`
    /// Limits of one client, so that others are served: a client is a key, or an address where there are no
    /// keys. 0: three quarters of the server's own limit; of a `gpu_service`, all of its sessions.
    std::uint32_t max_client_sessions = 0;
    std::size_t max_client_memory_bytes = 0;
    std::uint32_t max_connections = 4096;      ///< control connections at once; fewer where descriptors are few
    std::uint32_t max_client_connections = 0;  ///< of one client; 0: three quarters of `max_connections`
    /// Handshakes with one address: so many at once, then as many a second.
    std::uint32_t max_handshakes = 1024;
    memory_kind memory = memory_kind::host();  ///< where handlers want their bytes
    /// With `memory` of a GPU: requests that it works on at once, a worker; the others queue, until their deadlines.
    std::uint32_t streams = 8;
    std::uint32_t priority_streams = 2;  ///< as many again for channels of high priority
    /// One stream for all requests of a session, in order, instead of any free one for each.
    bool stream_per_session = false;
    /// Slots on the host are locked into RAM, so that the GPU copies them fast, and without a thread's help.
    bool pin_slots = true;
    std::chrono::nanoseconds peer_timeout = std::chrono::milliseconds{500};
    std::chrono::nanoseconds drain_timeout = std::chrono::seconds{2};  ///< of `stop` and the destructor
    poll_mode poll = poll_mode::adaptive;
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};
    std::uint16_t data_port = 0;  ///< zmq: first port of the data path, one a worker; 0: the URI's port + 1
    bool zerocopy = false;        ///< tcp: MSG_ZEROCOPY for large payloads
    /// tcp, zmq: what is sent to one client is no faster than this (SO_MAX_PACING_RATE of each data connection); 0:
    /// as fast as it can be. `unsupported` where the server listens on another scheme.
    bit_rate pacing{};
    verbs_options verbs{};
    security_options security{};
};

}  // namespace accel
