// SPDX-License-Identifier: Apache-2.0
// A modelled link in real time, between two processes: a message never arrives earlier than the model says, and one
// that came late is counted. Runs under `softnic run --mode spin --link 25Gb/s,1us`.
#include "peer_line.hpp"
#include "softnic/softnic.h"
#include "verbs_pair.hpp"

#include <array>
#include <cmath>
#include <csignal>
#include <vector>

#include <sys/wait.h>

namespace {

namespace st = accel::softnic::testing;
using st::line;
using st::require;
using std::chrono::nanoseconds;

constexpr double gigabits = 25;  // bits a nanosecond
constexpr double delay_ns = 1'000;
// Preamble and gap, Ethernet, IPv4, UDP, BTH, ICRC.
constexpr double each_packet = 8 + 12 + 14 + 4 + 20 + 8 + 12 + 4;
constexpr double mtu = 1024;
constexpr double write_header = 16;
constexpr double one_ack_ns = (each_packet + 4) * 8 / gigabits + delay_ns;
constexpr std::size_t memory_bytes = 1'000'000;
constexpr nanoseconds away = std::chrono::milliseconds{30};

double transfer_ns(double bytes) {
    return (bytes + std::ceil(bytes / mtu) * each_packet + write_header) * 8 / gigabits;
}
/// On one clock for both processes.
nanoseconds now() {
    return std::chrono::steady_clock::now().time_since_epoch();
}

struct counters {
    std::uint64_t timed;
    std::uint64_t late;
};
/// How many bytes will come; 0: no more.
using order = std::uint32_t;

struct end_of_link {
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(memory_bytes);
    st::mr_owner region{
        ibv_reg_mr(pd.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)};
    st::cq_owner cq{ibv_create_cq(context.get(), 64, nullptr, nullptr, 0)};
    st::qp_owner qp = st::make_qp(pd.get(), cq.get(), cq.get());

    struct address {
        std::uint32_t qpn;
        std::uint32_t rkey;
        std::uint64_t memory;
        std::uint16_t lid;
    };
    [[nodiscard]] address own() const {
        ibv_port_attr port{};
        require(ibv_query_port(context.get(), 1, &port) == 0, "no port");
        return {qp->qp_num, region->rkey, reinterpret_cast<std::uint64_t>(memory.data()), port.lid};
    }
    void connect_to(const address& other) const {
        st::connection how;
        how.mtu = IBV_MTU_1024;
        st::to_init(qp.get(), how);
        st::to_ready(qp.get(), other.qpn, other.lid, how);
    }
};

class receiving_process {
  public:
    explicit receiving_process(line to) : line_(to) {}

    int run() {
        line_.say(end_.own());
        end_.connect_to(line_.hear<end_of_link::address>());
        line_.say(order{0});
        while (const order bytes = line_.hear<order>()) line_.say(arrival_of(bytes));
        line_.say(counters{softnic_counter("timed_messages"), softnic_counter("late_messages")});
        return 0;
    }

  private:
    /// When the last byte is there.
    nanoseconds arrival_of(std::uint32_t bytes) {
        volatile std::uint8_t& last = end_.memory[bytes - 1];
        last = 0;
        line_.say(order{bytes});
        const nanoseconds deadline = now() + std::chrono::seconds{20};
        while (last == 0) require(now() < deadline, "a write has not arrived");
        return now();
    }

    end_of_link end_;
    line line_;
};

class sending_process {
  public:
    sending_process(line to, pid_t other) : line_(to), other_(other), there_(line_.hear<end_of_link::address>()) {
        end_.memory.assign(memory_bytes, 7);
        end_.connect_to(there_);
        line_.say(end_.own());
        (void)line_.hear<order>();
    }

    void run() {
        std::uint64_t sent = 0;
        for (int round = 0; round < 5; ++round)
            for (const std::uint32_t bytes : {64U, 1'024U, 65'536U, 602'112U, 1'000'000U}) {
                expect_not_early(bytes);
                ++sent;
            }
        expect_late();
        line_.say(order{0});
        const auto seen = line_.hear<counters>();
        require(seen.timed == sent + 1, "each message is timed once");
        require(seen.late >= 1, "the message to a process that stood still is late");
        require(seen.late <= seen.timed, "more messages are late than came");
        std::printf("link_program: %llu messages, none early, %llu late\n", static_cast<unsigned long long>(seen.timed),
                    static_cast<unsigned long long>(seen.late));
    }

  private:
    nanoseconds post(std::uint32_t bytes) {
        ibv_sge from{reinterpret_cast<std::uint64_t>(end_.memory.data()), bytes, end_.region->lkey};
        ibv_send_wr what{};
        what.sg_list = &from;
        what.num_sge = 1;
        what.opcode = IBV_WR_RDMA_WRITE;
        what.send_flags = IBV_SEND_SIGNALED;
        what.wr.rdma = {there_.memory, there_.rkey};
        ibv_send_wr* bad = nullptr;
        const nanoseconds before = now();
        require(ibv_post_send(end_.qp.get(), &what, &bad) == 0, "cannot post");
        return before;
    }
    void announce(std::uint32_t bytes) {
        line_.say(order{bytes});
        (void)line_.hear<order>();
    }
    void expect_not_early(std::uint32_t bytes) {
        announce(bytes);
        const nanoseconds before = post(bytes);
        require(st::wait_for(end_.cq.get()).status == IBV_WC_SUCCESS, "a write failed");
        const nanoseconds completed = now() - before;
        const nanoseconds arrived = line_.hear<nanoseconds>() - before;
        const double shortest = transfer_ns(bytes) + delay_ns;
        require(static_cast<double>(arrived.count()) >= shortest, "a message arrived before the link could bring it");
        require(static_cast<double>(completed.count()) >= shortest + one_ack_ns,
                "a message completed before its acknowledgement could come");
    }
    /// The receiving process stands still while the message is on its way.
    void expect_late() {
        announce(1'024);
        require(::kill(other_, SIGSTOP) == 0, "cannot stop the other process");
        int status = 0;
        require(::waitpid(other_, &status, WUNTRACED) == other_ && WIFSTOPPED(status), "it does not stand still");
        const nanoseconds before = post(1'024);
        while (now() - before < away) {
        }
        require(::kill(other_, SIGCONT) == 0, "cannot continue the other process");
        require(st::wait_for(end_.cq.get()).status == IBV_WC_SUCCESS, "a write failed");
        require(line_.hear<nanoseconds>() - before >= away, "it arrived while nobody could receive it");
    }

    end_of_link end_;
    line line_;
    pid_t other_;
    end_of_link::address there_;
};

}  // namespace

int main() {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "no sockets");
    const pid_t child = ::fork();  // before any device is open
    ::close(ends[child == 0 ? 0 : 1]);
    if (child == 0) return receiving_process(line(ends[1])).run();
    sending_process(line(ends[0]), child).run();
    int status = 0;
    ::waitpid(child, &status, 0);
    require(status == 0, "the receiver failed");
    return 0;
}
