// SPDX-License-Identifier: Apache-2.0
// GPU memory between two processes, a GPU that faults, and figures. Run under `softnic run`:
//   softnic_gpu_pair check | bench | alone | fault      (exit status 77 without a GPU)
#include "gpu_rig.cuh"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;
namespace gpu = accel::softnic::testing::gpu;
using steady = std::chrono::steady_clock;

constexpr std::size_t region_bytes = (64 << 20) + (2 << 20);

void require(bool what, const std::string& sentence) {
    if (!what) throw std::runtime_error(sentence);
}

double microseconds_since(steady::time_point start) {
    return std::chrono::duration<double, std::micro>(steady::now() - start).count();
}

gpu::way chosen_way() {
    return gpu::setting_is("SOFTNIC_DMABUF", "0") ? gpu::way::peer : gpu::way::dmabuf;
}

struct address_card {
    std::uint32_t qpn;
    std::uint32_t rkey;
    std::uint64_t address;
};

/// A queue pair with GPU memory, and a wire to the other process for words that are not under test.
struct endpoint {
    endpoint(int wire_to_other, int device_index) : wire(wire_to_other) {
        require(cudaSetDevice(device_index) == cudaSuccess, "no such GPU");
        memory = std::make_unique<gpu::buffer>(region_bytes);
        require(memory->enrol(pd.get(), chosen_way()) != nullptr, std::string("registration: ") + std::strerror(errno));
        const address_card mine{qp->qp_num, memory->mr()->rkey, memory->address()};
        say(mine);
        other = hear<address_card>();
        const st::connection how;
        st::to_init(qp.get(), how);
        st::to_ready(qp.get(), other.qpn, 1, how);
        say('r');
        require(hear<char>() == 'r', "the other side is not ready");
    }
    template <class T>
    void say(const T& what) const {
        require(::write(wire, &what, sizeof what) == static_cast<ssize_t>(sizeof what), "the other process is gone");
    }
    template <class T>
    [[nodiscard]] T hear() const {
        T what{};
        require(::read(wire, &what, sizeof what) == static_cast<ssize_t>(sizeof what), "the other process is gone");
        return what;
    }
    void done(const char* what) const {
        const ibv_wc seen = gpu::wait(cq.get());
        require(seen.status == IBV_WC_SUCCESS, std::string(what) + ": " + ibv_wc_status_str(seen.status));
    }
    void write_with_immediate(std::size_t at, std::size_t remote_at, std::uint32_t size) const {
        ibv_sge piece{memory->address(at), size, memory->mr()->lkey};
        auto what = gpu::request(IBV_WR_RDMA_WRITE_WITH_IMM, piece, other.address + remote_at, other.rkey);
        gpu::post(qp.get(), what);
    }
    void read(std::size_t at, std::size_t remote_at, std::uint32_t size) const {
        ibv_sge piece{memory->address(at), size, memory->mr()->lkey};
        auto what = gpu::request(IBV_WR_RDMA_READ, piece, other.address + remote_at, other.rkey);
        gpu::post(qp.get(), what);
    }

    int wire;
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    st::cq_owner cq{ibv_create_cq(context.get(), 256, nullptr, nullptr, 0)};
    st::qp_owner qp = st::make_qp(pd.get(), cq.get(), cq.get());
    std::unique_ptr<gpu::buffer> memory;
    address_card other{};
};

struct step {
    std::uint32_t size;
    std::uint32_t seed;
    std::uint32_t shift;
};
constexpr std::array<std::uint32_t, 10> sizes{1, 8, 33, 4096, 4097, 65536, 100'001, 1 << 20, (4 << 20) + 3, 64 << 20};
constexpr std::size_t rounds_of_latency = 2000;

void check_from(const endpoint& end) {
    std::uint32_t seed = 0;
    for (const std::uint32_t size : sizes) {
        for (const std::uint32_t shift : {0u, 3u}) {
            const step now{size, ++seed, shift};
            gpu::fill(end.memory->at(4096), size, now.seed);
            end.say(now);
            require(end.hear<char>() == 'p', "no receive posted");
            end.write_with_immediate(4096, 8192 + shift, size);
            end.done("write");
            const auto wrong = end.hear<std::uint64_t>();
            require(wrong == 0, std::to_string(wrong) + " bytes of a write wrong, size " + std::to_string(size));
            gpu::set(end.memory->at(0), 8192 + size, 1);
            end.read(4096 + 5, 8192 + shift, size);
            end.done("read");
            require(gpu::count_wrong(end.memory->at(4096 + 5), size, now.seed) == 0, "bytes of a read wrong");
        }
    }
    end.say(step{0, 0, 0});
    std::printf("two processes: %zu sizes, written and read back, all bytes right\n", sizes.size());
}

void check_to(const endpoint& end) {
    for (step now = end.hear<step>(); now.size != 0; now = end.hear<step>()) {
        gpu::set(end.memory->at(0), 16384 + now.size, 2);
        gpu::post_receive(end.qp.get(), nullptr, 0);
        end.say('p');
        end.done("receive");
        const std::byte* data = end.memory->at(8192 + now.shift);
        end.say(gpu::count_wrong(data, now.size, now.seed) + gpu::count_unlike(data - 64, 64, 2) +
                gpu::count_unlike(data + now.size, 64, 2));
    }
}

void bench_from(const endpoint& end) {
    std::vector<double> samples;
    gpu::post_receive(end.qp.get(), nullptr, 0);
    require(end.hear<char>() == 'p', "no receive posted");
    for (std::size_t round = 0; round < rounds_of_latency; ++round) {
        const auto start = steady::now();
        end.write_with_immediate(0, 0, 8);
        end.done("write");
        end.done("answer");
        samples.push_back(microseconds_since(start) / 2);
        gpu::post_receive(end.qp.get(), nullptr, 0);
    }
    std::sort(samples.begin(), samples.end());
    std::printf("emulation, two processes: 8 B GPU to GPU and its completion: p50 %.1f us, p99 %.1f us\n",
                samples[samples.size() / 2], samples[samples.size() * 99 / 100]);
    for (const std::uint32_t size : {4096u, 65536u, 1u << 20, 16u << 20}) {
        const int rounds = size > (1 << 20) ? 20 : 200;
        const auto start = steady::now();
        for (int round = 0; round < rounds; ++round) {
            end.read(0, 0, size);
            end.done("read");
        }
        std::printf("emulation, two processes: reads of %u KiB, one at a time: %.2f GB/s\n", size >> 10,
                    double(size) * rounds / microseconds_since(start) / 1e3);
    }
    end.say('e');
}

void bench_to(const endpoint& end) {
    gpu::post_receive(end.qp.get(), nullptr, 0);
    end.say('p');
    for (std::size_t round = 0; round < rounds_of_latency; ++round) {
        end.done("request");
        gpu::post_receive(end.qp.get(), nullptr, 0);
        end.write_with_immediate(0, 0, 8);
        end.done("answer");
    }
    require(end.hear<char>() == 'e', "end expected");
}

/// Within one process: both copies, out of and into GPU memory, in one figure.
void bench_alone() {
    const auto context = st::open_device();
    const st::pd_owner pd(ibv_alloc_pd(context.get()));
    const st::cq_owner cq(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0));
    const auto qp = st::make_qp(pd.get(), cq.get(), cq.get());
    const auto peer = st::make_qp(pd.get(), cq.get(), cq.get());
    st::connect(qp.get(), peer.get());
    gpu::buffer from(region_bytes);
    gpu::buffer to(region_bytes);
    require(from.enrol(pd.get(), chosen_way()) != nullptr && to.enrol(pd.get(), chosen_way()) != nullptr,
            "registration");
    for (const std::uint32_t size : {8u, 4096u, 65536u, 1u << 20, 16u << 20}) {
        const int rounds = size > 65536 ? 50 : 1000;
        std::vector<double> samples;
        for (int round = 0; round < rounds; ++round) {
            ibv_sge piece{from.address(0), size, from.mr()->lkey};
            auto what = gpu::request(IBV_WR_RDMA_WRITE, piece, to.address(0), to.mr()->rkey);
            const auto start = steady::now();
            gpu::post(qp.get(), what);
            require(gpu::wait(cq.get()).status == IBV_WC_SUCCESS, "write failed");
            samples.push_back(microseconds_since(start));
        }
        std::sort(samples.begin(), samples.end());
        const double middle = samples[samples.size() / 2];
        std::printf("emulation, one process: write of %u B GPU to GPU: p50 %.1f us, p99 %.1f us, %.2f GB/s\n", size,
                    middle, samples[samples.size() * 99 / 100], size / middle / 1e3);
    }
}

/// After the GPU has faulted, work on its memory ends with an error, and work on host memory goes on.
void fault_alone() {
    const auto context = st::open_device();
    const st::pd_owner pd(ibv_alloc_pd(context.get()));
    const st::cq_owner cq(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0));
    const auto qp = st::make_qp(pd.get(), cq.get(), cq.get());
    const auto peer = st::make_qp(pd.get(), cq.get(), cq.get());
    const auto host_qp = st::make_qp(pd.get(), cq.get(), cq.get());
    const auto host_peer = st::make_qp(pd.get(), cq.get(), cq.get());
    st::connect(qp.get(), peer.get());
    st::connect(host_qp.get(), host_peer.get());
    auto& memory = *new gpu::buffer(region_bytes);  // cannot be freed any more
    std::vector<std::byte> host(1 << 20);
    const st::mr_owner mr(ibv_reg_mr(pd.get(), host.data(), host.size(), gpu::all_access));
    require(memory.enrol(pd.get(), chosen_way()) != nullptr && mr != nullptr, "registration");
    ibv_sge piece{reinterpret_cast<std::uint64_t>(host.data()), 100'000, mr->lkey};
    auto what = gpu::request(IBV_WR_RDMA_WRITE, piece, memory.address(0), memory.mr()->rkey);
    gpu::post(qp.get(), what);
    require(gpu::wait(cq.get()).status == IBV_WC_SUCCESS, "the write before the fault");
    gpu::fault();
    const auto start = steady::now();
    gpu::post(qp.get(), what);
    const ibv_wc seen = gpu::wait(cq.get());
    const double took_ms = microseconds_since(start) / 1e3;
    require(seen.wr_id != ~0ull, "no completion at all");
    require(seen.status != IBV_WC_SUCCESS, "a write to a dead GPU succeeded");
    ibv_sge from{piece.addr, 1000, mr->lkey};
    auto plain = gpu::request(IBV_WR_RDMA_WRITE, from, piece.addr + 5000, mr->rkey);
    gpu::post(host_qp.get(), plain);
    ibv_wc next = gpu::wait(cq.get());
    while (next.status == IBV_WC_WR_FLUSH_ERR) next = gpu::wait(cq.get());
    require(next.status == IBV_WC_SUCCESS, "host memory must go on");
    std::printf("a GPU that faulted: \"%s\" after %.1f ms; host memory goes on\n", ibv_wc_status_str(seen.status),
                took_ms);
    std::fflush(nullptr);
    ::_exit(0);
}

int in_process(const char* who, int wire, bool first, const std::string& mode) {
    try {
        if (const char* why = gpu::missing()) {
            std::printf("skipped: %s\n", why);
            return 77;
        }
        int gpus = 0;
        static_cast<void>(cudaGetDeviceCount(&gpus));
        const endpoint end(wire, first ? 0 : gpus - 1);
        if (mode == "check")
            first ? check_from(end) : check_to(end);
        else
            first ? bench_from(end) : bench_to(end);
    } catch (const std::exception& error) {
        std::printf("%s: FAILED: %s\n", who, error.what());
        return 1;
    }
    return 0;
}

/// Forks before anybody opens a device or a GPU.
int two_processes(const std::string& mode) {
    int wires[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, wires) == 0, "no socket pair");
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(wires[0]);
        std::exit(in_process("second process", wires[1], false, mode));
    }
    ::close(wires[1]);
    const int mine = in_process("first process", wires[0], true, mode);
    ::close(wires[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    const int theirs = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return mine != 0 ? mine : theirs;
}

}  // namespace

int main(int count, char** arguments) {
    const std::string mode = count > 1 ? arguments[1] : "check";
    if (mode == "check" || mode == "bench") return two_processes(mode);
    try {
        if (const char* why = gpu::missing()) {
            std::printf("skipped: %s\n", why);
            return 77;
        }
        if (mode == "alone") bench_alone();
        if (mode == "fault") fault_alone();
    } catch (const std::exception& error) {
        std::printf("FAILED: %s\n", error.what());
        return 1;
    }
    return 0;
}
