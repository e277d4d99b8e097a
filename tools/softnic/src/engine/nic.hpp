// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/device_clock.hpp"
#include "engine/uar.hpp"
#include "transport/hca.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace accel::softnic {

/// The adapters of a process together with what makes them move: doorbells, and a loop that somebody calls.
/// All members but `mutex` and `callers` need the mutex held.
class nic {
  public:
    nic(settings chosen, std::unique_ptr<fabric> joined);

    std::mutex mutex;
    std::atomic<std::uint32_t> callers{0};  ///< want the mutex: a device that is always busy gives way to them
    hca state;

    /// Does what there is to do now. True if something moved. `now_ns` from any clock that only goes forward. With a
    /// modelled link and several processes, `state.wire_clock` must be set.
    bool progress(std::uint64_t now_ns);
    /// Is there anything to do? Much cheaper than progress(), for who asks in every call of the program.
    [[nodiscard]] bool has_something_to_do();
    /// Anything that time alone, or a packet, could move?
    [[nodiscard]] bool busy() const {
        return !state.scheduled.empty() || !state.held.empty() || state.port_up_at != hca::never;
    }

    uar_page& add_uar(int command_file);
    void remove_uar(std::uint32_t number);

    /// A clock that shows the device's time until it is removed.
    device_clock& add_clock(int command_file) { return clocks_.emplace_back(command_file); }
    void remove_clock(const device_clock& clock);

    std::shared_ptr<completion_queue> create_cq(completion_queue_options options);
    void remove_cq(const completion_queue& cq);
    [[nodiscard]] const std::map<std::uint32_t, std::shared_ptr<completion_queue>>& cqs() const { return cqs_; }

    /// Null when the fabric has no queue pair number left.
    queue_pair* create_qp(int device, queue_pair_options options);
    void destroy_qp(queue_pair& qp);
    /// MODIFY_QP: 0 or an errno value.
    int modify_qp(queue_pair& qp, const qp_modification& change);

    [[nodiscard]] std::uint32_t next_number() { return ++last_number_; }
    /// A close() of the reading end, by the program.
    void forget_channel(const event_pipe* channel);

  private:
    [[nodiscard]] bool look_at_doorbells() const;
    bool take_doorbells();
    bool take_send_doorbells(uar_page& page);
    bool take_arm_doorbell(uar_page& page);
    void look_at_named(const uar_page& page, std::uint32_t number);
    void look_at(queue_pair& qp);
    void look_at_some_arms();
    [[nodiscard]] uar_page* find_uar(std::uint32_t number);
    bool run_queue_pairs();
    bool run(queue_pair& qp);
    bool run_error_state(queue_pair& qp);
    bool receive_packets();
    bool receive_over_link();
    [[nodiscard]] inbox::entry* next_arrival();
    [[nodiscard]] bool waits_for_more(const inbox::entry& next) const;
    bool take_arrivals();
    void place_due(inbox::entry& next);
    void deliver_arrival(const inbox::entry& next);
    bool place_ahead();
    void judge(const packet_header& header);
    [[nodiscard]] std::optional<arrival> examine(const packet& in, packet_header& copy);
    [[nodiscard]] std::optional<arrival> examine_waiting(const packet& in, packet_header& copy) const;
    void deliver(const arrival& in);
    void restore_ports();
    void reap_sometimes();

    [[nodiscard]] int check(const queue_pair& qp, const qp_modification& change);
    [[nodiscard]] int check_path(const queue_pair& qp, const path& to, std::uint8_t port_number);
    void apply_values(queue_pair& qp, const qp_modification& change);
    void change_state(queue_pair& qp, const qp_modification& change);
    void reset(queue_pair& qp);

    std::list<uar_page> uars_;
    std::list<device_clock> clocks_;
    std::map<std::uint32_t, std::shared_ptr<completion_queue>> cqs_;
    std::size_t arms_left_ = 0;     ///< completion queues to look at since an arm doorbell rang
    std::uint32_t last_armed_ = 0;  ///< number of the one that was looked at last
    std::uint32_t last_number_ = 0;
    std::uint32_t last_uar_ = device_clock::pages_end;
    std::uint64_t reap_at_ = 0;
    bounded_queue<inbox::entry, ring_slots> arrived_;  ///< over a modelled link: due, and not yet delivered
};

}  // namespace accel::softnic
