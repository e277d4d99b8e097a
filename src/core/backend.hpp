#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"
#include "core/net/unique_fd.hpp"
#include "core/protocol.hpp"
#include "core/slot_memory.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::device {
struct channel_ref;
struct service_ref;
}  // namespace accel::device

/// The internal contract: what a backend implements. One data-path primitive, `deliver`: put header and
/// payload into slot i of the peer and tell the peer. Everything else is control path.
///
/// Threads: a poller and its links belong to one thread (a worker, or a channel's owner). `backend` methods,
/// `poller::open_link`, `link::attach` and `link::describe` are control path and may be called from another
/// thread up to and including `link::activate`. Nothing here calls back up: what happened is returned by
/// `poller::poll`.
namespace accel::core {

class context_state;
class link;
class tls_stream;
struct security_identity;

enum class link_role : std::uint8_t { client, server };

/// Agreed at the handshake; the same numbers at both ends.
struct link_geometry {
    std::uint32_t slots = 0;
    std::uint64_t request_bytes = 0;   ///< payload capacity of a request slot
    std::uint64_t response_bytes = 0;  ///< payload capacity of a response slot
};

/// Shown once by the client on a data path of its own, to prove which session it belongs to.
using session_token = std::array<std::byte, 16>;

/// What one end tells the other about its link, opaque to the core: a port, queue-pair number, keys.
/// At most 512 bytes. Travels only on the control plane.
using link_description = std::vector<std::byte>;

/// A connection that a client has made to the server's port for the data path of a session. Nothing behind
/// its preamble was read, and the preamble is not answered yet.
struct data_connection {
    unique_fd socket;
    std::shared_ptr<tls_stream> tls;  ///< null: plain bytes
    std::uint64_t session_id = 0;
    session_token token{};
};

struct link_config {
    link_role role = link_role::client;
    link_geometry geometry;
    /// Handed back in every event of this link.
    void* owner = nullptr;
    /// Slots that this end writes and delivers from, and slots that arrive. A server's are null where the
    /// backend shares the client's memory (`backend::shares_memory`); the link then names them after attach.
    std::shared_ptr<slot_memory> send;
    std::shared_ptr<slot_memory> receive;
    bool zerocopy = false;
    /// Server: the session this link is for. A client learns both from the grant.
    std::uint64_t session_id = 0;
    session_token token{};
};

/// What the server granted, as far as a link needs it.
struct link_grant {
    std::uint64_t session_id = 0;
    session_token token{};
    std::string host;  ///< where the client reached the control plane
    link_description description;
    std::uint16_t port = 0;  ///< of the control plane
};

/// One message for the peer's slot. The header is already in `send` slot memory, complete.
struct outgoing {
    std::uint32_t slot = 0;
    /// Where the payload lies: in its slot right behind the header, or in a lent slice.
    std::span<const std::byte> payload;
    const region_state* region = nullptr;  ///< of a lent payload; null when it lies in the slot
    /// Requests: where the response goes instead of its slot; empty if nowhere else.
    slice response_into;

    [[nodiscard]] bool lends() const noexcept { return region != nullptr || !response_into.empty(); }
};

enum class event_kind : std::uint8_t {
    arrived,  ///< a message is complete in a slot; header and payload are set, unchecked by the link
              ///< but for what it needed itself (slot and length within the geometry)
    let_go,  ///< the transport no longer touches memory lent for `header.slot`; only after `retract` said no,
             ///< and on a server for every lent payload
    lost,    ///< the link is dead; `reason` says why; nothing more comes from it
};

struct link_event {
    event_kind kind = event_kind::arrived;
    bool borrowed = true;  ///< arrived: `link::consumed` has to be called; false: it may be left out
    status reason = status::ok;
    void* owner = nullptr;
    slot_header header;
    std::span<std::byte> payload;        ///< arrived: the bytes, valid until `link::consumed(slot)`
    std::span<std::byte> response_room;  ///< server: where the response is written; empty: the send slot
};

/// Of memory that a handler works in though it is the client's.
enum class recall : std::uint8_t {
    none,
    readable,  ///< wanted back; readable until `link::consumed`
    gone,      ///< wanted back, and not to be touched any more
};

/// The data path between two connected peers.
class link {
  public:
    virtual ~link() = default;

    // Control path.
    /// What the peer needs to reach this end. Server: valid after attach.
    [[nodiscard]] virtual link_description describe() const = 0;
    /// Client: makes the data connection, by `deadline`. Server: takes the client's description
    /// (`grant.description`), does not wait for it.
    [[nodiscard]] virtual result<void> attach(const link_grant& grant, nanoseconds deadline) = 0;
    /// From now on this link has events. Client: on the polling thread. Server: from *any* thread while the
    /// poller polls, before the grant is sent: a short lock that polling meets only when a new peer attaches.
    virtual void activate() = 0;
    /// On the polling thread: nothing need reach the peer any more. Server: it is gone, as the control plane
    /// says. Client: it has kept lent memory for too long, so that `close` must not wait for it any longer.
    virtual void peer_left() noexcept {}
    /// On the polling thread, idempotent: ends the link and tells the peer where the transport can. No events
    /// follow. Returns true when nothing touches any slot or lent memory any more; else call again, until it
    /// does.
    [[nodiscard]] virtual bool close() noexcept = 0;

    /// Server, where `backend::shares_memory`, on the polling thread after `close`: the client wants back the
    /// memory that handlers work in. Said once.
    [[nodiscard]] virtual recall recalled() noexcept { return recall::none; }

    // Data path: no allocation, lock or log line.
    /// Hands a message over. `ok`: it will arrive, or the link will be lost; header and payload must stay as
    /// they are until the answer (client) or the next request in that slot (server). `again`: nothing was
    /// done. `peer_lost`.
    [[nodiscard]] virtual status deliver(const outgoing& message) noexcept = 0;
    /// The same where nothing is lent and the answer goes into its slot, as in most messages.
    [[nodiscard]] virtual status deliver_plain(std::uint32_t slot,
                                               std::span<const std::byte> payload) noexcept = 0;
    /// Client: stop touching what was lent for this slot (payload and response_into). True: done, now. False:
    /// a `let_go` event or the late response says when.
    [[nodiscard]] virtual bool retract(std::uint32_t slot) noexcept = 0;
    /// The receiver is done with the payload of the last arrival in this slot. Also after close.
    virtual void consumed(std::uint32_t slot) noexcept = 0;

    /// True when everything delivered has left this process (for a graceful stop). Where the transport would
    /// not say so by itself, this asks it to.
    [[nodiscard]] virtual bool flushed() noexcept { return true; }

    /// Lent memory of a GPU's region is read (`written`: is written by the peer) where it is; else the core
    /// stages it. The first time with a region it may take long.
    [[nodiscard]] virtual bool reaches(const region_state& /*region*/, bool /*written*/) noexcept {
        return false;
    }

    /// This end's slots; server: valid after attach.
    [[nodiscard]] virtual slot_memory& send() const noexcept = 0;
    /// Where messages arrive; server: valid after attach.
    [[nodiscard]] virtual slot_memory& receive() const noexcept = 0;
};

/// How kernels reach their device.
struct resident_engine {
    gpu_engine engine = gpu_engine::automatic;
    std::string reason;
    nanoseconds cpu_time{};  ///< that it has taken from the host, beside the poller
};

/// A channel whose calls come from kernels (`poller_options::resident` of a client), as the host deals with
/// them. Any thread.
class kernel_client {
  public:
    virtual ~kernel_client() = default;
    /// What kernels are given; once its link is attached.
    [[nodiscard]] virtual const device::channel_ref& channel() const noexcept = 0;
    /// The server's clock minus ours.
    virtual void set_clock_offset(nanoseconds offset) noexcept = 0;
    /// Calls end with this from about now on. The first reason stays.
    virtual void end(status why) noexcept = 0;
    /// No kernel uses it any more: brings what kernels report up to date.
    [[nodiscard]] virtual result<void> finish_report() = 0;
};

/// What one thread polls: all its links of one backend, and their common source of events.
class poller {
  public:
    virtual ~poller() = default;
    /// Control path, any thread.
    [[nodiscard]] virtual result<std::unique_ptr<link>> open_link(const link_config& config) = 0;
    /// Server, any thread: a client has connected for one of this poller's links. The connection is answered
    /// and taken, or refused and left as it is. Does not block.
    [[nodiscard]] virtual result<void> take_connection(data_connection& /*made*/) {
        return error{status::unauthorized, 0, "sessions of this transport have no data connection"};
    }

    /// Takes events in order of arrival, fairly over the links; returns how many; never blocks. Also makes
    /// progress on what is being sent. Called with room for at least 16.
    [[nodiscard]] virtual std::size_t poll(std::span<link_event> out) noexcept = 0;
    /// Readable when poll has something to do, provided `arm` said true.
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    /// Before sleeping on event_fd. False: something is ready, poll instead.
    [[nodiscard]] virtual bool arm() noexcept = 0;
    /// Sleeps until poll has something to do, `other_fd` (always the same one) is readable or `until` has
    /// passed; may end early. Only after `arm` said true, with `disarm` behind it. True: `other_fd` is
    /// readable; a client's poller may tell that some 10 ms late.
    [[nodiscard]] virtual bool sleep(int other_fd, nanoseconds until) noexcept {
        std::array<pollfd, 2> fds{{{event_fd(), POLLIN, 0}, {other_fd, POLLIN, 0}}};
        sleep_on(fds, until);
        return (fds[1].revents & POLLIN) != 0;
    }
    /// After waking. Cheap.
    virtual void disarm() noexcept {}

    /// With `poller_options::resident`: what its kernels need.
    [[nodiscard]] virtual const device::service_ref* service() const noexcept { return nullptr; }
    /// … and how they reach the device.
    [[nodiscard]] virtual resident_engine engine() const { return {}; }
    /// … and they are to end. Any thread.
    virtual void request_stop() noexcept {}
    /// … and they have all ended: nothing waits for them any more.
    virtual void kernels_ended() noexcept {}
    /// … of a client. Lives as long as the poller.
    [[nodiscard]] virtual kernel_client* client() noexcept { return nullptr; }
};

/// A service that lives on a GPU, or a channel whose calls come from there: all that its sessions will need
/// is made before its kernels run.
struct resident_options {
    std::shared_ptr<accelerator> gpus;
    accelerator_device* gpu = nullptr;  ///< null: a thread of the host in a kernel's place
    std::uint32_t sessions = 0;
    link_geometry most{};        ///< of a session
    nanoseconds call_timeout{};  ///< client
};

struct poller_options {
    link_role role = link_role::client;
    /// Server: where to listen for data; `port` 0 is any.
    std::string host;
    std::uint16_t port = 0;
    std::shared_ptr<const security_identity> security;  ///< null for in-process backends
    bool zerocopy = false;
    verbs_options verbs{};
    std::uint32_t sessions = 0;  ///< server: at once, of all pollers together
    /// Server: the longest request that a session may be granted; 0: any.
    std::size_t max_request_bytes = 0;
    /// Kernels take the requests of this server, or make the calls of this client's only link; `poll` does
    /// not.
    std::optional<resident_options> resident{};
};

struct probe_result {
    bool usable = false;
    std::string reason;  ///< one sentence: what it will use, or what is missing and how to get it
};

/// One scheme. Made once per context; stateless but for devices it opened.
class backend {
  public:
    virtual ~backend() = default;
    [[nodiscard]] virtual std::string_view scheme() const noexcept = 0;
    /// Schemes with the same wire talk to each other; memory and who posts are each end's own business.
    [[nodiscard]] virtual std::string_view wire() const noexcept { return scheme(); }
    /// Does this machine have what it takes. May block briefly.
    [[nodiscard]] virtual probe_result probe() = 0;
    /// The same, and looks closer, for people: while no kernel of a service runs.
    [[nodiscard]] virtual probe_result examine() { return probe(); }
    /// True: peers are in one process and the server uses the client's slots; no network control plane.
    [[nodiscard]] virtual bool shares_memory() const noexcept { return false; }
    /// True: with keys, nobody on the network can read or change payloads, unless `encryption::off` is asked
    /// for. Its pollers learn what is by `poller_options::security`.
    [[nodiscard]] virtual bool encrypts() const noexcept { return false; }
    /// True: a server's pollers listen on ports of their own; else all that arrives comes by the port of the
    /// URI.
    [[nodiscard]] virtual bool has_data_port() const noexcept { return false; }
    /// True: with `poller_options::resident` a server's links bring their slots themselves, for kernels.
    [[nodiscard]] virtual bool serves_kernels() const noexcept { return false; }
    /// True: a server's slots may have their payloads on a GPU, and messages arrive there.
    [[nodiscard]] virtual bool fills_gpus() const noexcept { return false; }
    /// Makes a region usable by this backend's links, once, ahead of its first use.
    [[nodiscard]] virtual result<void> register_region(const region_state&) { return {}; }
    virtual void unregister_region(const region_state&) noexcept {}
    [[nodiscard]] virtual result<std::unique_ptr<poller>> open_poller(const poller_options& options) = 0;
};

}  // namespace accel::core
