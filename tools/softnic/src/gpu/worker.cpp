// SPDX-License-Identifier: Apache-2.0
#include "gpu/worker.cuh"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include <pthread.h>
#include <signal.h>

extern "C" {
extern const char softnic_copy_image[];
}

namespace accel::softnic::gpu {
namespace {

using steady = std::chrono::steady_clock;

constexpr unsigned kernel_threads = 1024;
constexpr std::uint64_t crowded_idle_ns = 5'000;
constexpr std::chrono::seconds longest_start{20};
constexpr std::chrono::seconds longest_stop{1};
constexpr std::chrono::microseconds linger{50};
/// A kernel that has begun waits for this thread, as does the next message if the thread sleeps.
constexpr std::chrono::milliseconds linger_for_kernel{1};
constexpr std::size_t lanes_bytes = lane_count * sizeof(lane_memory);
constexpr std::uint32_t copies_at_once = 8;
constexpr std::size_t bounce_bytes = copies_at_once * std::size_t{inline_bytes};
static_assert(lanes_bytes % 64 == 0);

void block_signals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

bool is_copy(const std::array<std::uint32_t, content_words>& content) {
    const auto what = static_cast<action>(content[0] & 7);
    return what == action::write || what == action::read;
}

std::uint64_t pair_of(const std::array<std::uint32_t, content_words>& content, std::size_t at) {
    return content[at] | static_cast<std::uint64_t>(content[at + 1]) << 32;
}

}  // namespace

worker::worker(const driver& calls, const gpu_range& where, const softnic_cuda_options& options, neighbours& others)
    : calls_(calls), where_(where), options_(options), neighbours_(others) {}

/// A worker whose thread has not come up in time is left behind: the thread may still use it.
std::unique_ptr<worker> worker::start(const driver& calls, const gpu_range& where, const softnic_cuda_options& options,
                                      neighbours& others) {
    std::unique_ptr<worker> made(new worker(calls, where, options, others));
    std::thread([self = made.get()] { self->run(); }).detach();
    std::unique_lock lock(made->mutex_);
    made->changed_.wait_for(lock, longest_start, [&] { return made->stage_ != stage::starting; });
    if (made->stage_ == stage::ready) {
        lock.unlock();
        return made;
    }
    made->stopping_ = true;
    lock.unlock();
    static_cast<void>(made.release());
    return nullptr;
}

void worker::run() {
    block_signals();
    ::pthread_setname_np(::pthread_self(), "softnic-cuda");
    if (options_.begin_thread != nullptr) options_.begin_thread();
    const bool prepared = prepare();
    {
        const std::lock_guard lock(mutex_);
        stage_ = prepared ? stage::ready : stage::failed;
    }
    changed_.notify_all();
    if (prepared) work();
    dead_ = true;
    {
        const std::lock_guard lock(mutex_);
        parked_ = true;
    }
    changed_.notify_all();
}

bool worker::check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return true;
    std::fprintf(stderr, "softnic: GPU %d: %s: %s\n", where_.device, what, calls_.name_of(result).c_str());
    dead_ = true;
    return false;
}

bool worker::prepare() {
    CUdevice device = 0;
    if (!check(calls_.cuDeviceGet(&device, where_.device), "cannot get the device")) return false;
    if (where_.context == nullptr) {
        if (!check(calls_.cuDevicePrimaryCtxRetain(&where_.context, device), "cannot open a context")) return false;
    }
    if (!check(calls_.cuCtxSetCurrent(where_.context), "the context cannot be used")) return false;
    void* pinned = nullptr;
    const std::size_t bytes = lanes_bytes + lane_count * bounce_bytes + copy_engine::staging_bytes;
    if (!check(calls_.cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
               "cannot allocate pinned memory"))
        return false;
    pinned_ = static_cast<std::byte*>(pinned);
    int lowest = 0;
    int highest = 0;
    calls_.cuCtxGetStreamPriorityRange(&lowest, &highest);
    if (!options_.copies_by_driver && !prepare_kernel()) return false;
    std::byte* bounce = pinned_ + lanes_bytes;
    for (std::size_t at = 0; at < lanes_.size(); ++at, bounce += bounce_bytes)
        if (!prepare(lanes_[at], reinterpret_cast<lane_memory*>(pinned_)[at], bounce, highest)) return false;
    engine_ = std::make_unique<copy_engine>(*lanes_[0].jobs, *lanes_[1].jobs, *lanes_[2].jobs, bounce,
                                            !options_.copies_by_driver);
    return true;
}

bool worker::prepare(attended& which, lane_memory& memory, std::byte* bounce, int priority) {
    for (CUstream* stream : {&which.kernels, &which.copies})
        if (!check(calls_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, priority), "cannot make a stream"))
            return false;
    which.bounce = bounce;
    which.jobs = std::make_unique<lane>(memory, *this, std::chrono::milliseconds(options_.timeout_ms));
    return true;
}

/// Asking for an attribute loads the kernel, where loading is lazy: later, with a kernel of the program in
/// the way, that could wait for ever.
bool worker::prepare_kernel() {
    CUmodule image = nullptr;
    int threads = 0;
    return check(calls_.cuModuleLoadData(&image, softnic_copy_image), "the copy kernel cannot be loaded") &&
           check(calls_.cuModuleGetFunction(&kernel_, image, "softnic_copy"), "the copy kernel is missing") &&
           check(calls_.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel_),
                 "the copy kernel cannot be used");
}

void worker::wake(lane&) {
    {
        const std::lock_guard lock(mutex_);
        if (wanted_) return;
        wanted_ = true;
    }
    changed_.notify_all();
}

bool worker::alive() {
    {
        const std::lock_guard lock(mutex_);
        look_ = true;
    }
    changed_.notify_all();
    return !dead_;
}

/// If the thread is dead, it has said why.
void worker::given_up() {
    if (dead_) return;
    std::fprintf(
        stderr,
        "softnic: GPU %d: a copy took longer than %llu ms (SOFTNIC_CUDA_TIMEOUT_MS); its registered memory can "
        "no longer be used\n",
        where_.device, static_cast<unsigned long long>(options_.timeout_ms));
}

void worker::work() {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !dead_) {
        changed_.wait(lock, [this] { return wanted_ || look_ || stopping_; });
        const bool look = look_;
        wanted_ = look_ = false;
        lock.unlock();
        serve_until_quiet();
        for (const attended& each : lanes_) {
            for (CUstream stream : {each.kernels, each.copies}) {
                const CUresult state = look ? calls_.cuStreamQuery(stream) : CUDA_SUCCESS;
                if (state != CUDA_ERROR_NOT_READY && !dead_) check(state, "copies failed");
            }
        }
        lock.lock();
    }
}

bool worker::launch(attended& which) {
    lane_memory* memory = &which.jobs->memory();
    std::uint32_t service = which.jobs->begin_kernel();
    const std::uint64_t chosen_ns = options_.idle_us * 1000;
    unsigned long long idle_ns = neighbours_.any() ? std::min(crowded_idle_ns, chosen_ns) : chosen_ns;
    unsigned long long stay_ns = options_.stay_ms * 1'000'000;
    void* arguments[]{&memory, &service, &idle_ns, &stay_ns};
    return check(calls_.cuLaunchKernel(kernel_, 1, 1, 1, kernel_threads, 1, 1, 0, which.kernels, arguments, nullptr),
                 "the copy kernel cannot be launched");
}

/// While others use the GPU their kernels and ours would have to take turns, which copies need not. The
/// driver has no atomics: those are the kernel's in any case.
bool worker::wants_kernel() {
    return !options_.copies_by_driver && !neighbours_.any();
}

bool worker::expects_kernel() const {
    return std::any_of(lanes_.begin(), lanes_.end(), [](const attended& each) { return each.jobs->expects_kernel(); });
}

/// Stays a little, as jobs come in rows.
void worker::serve_until_quiet() {
    auto quiet_at = steady::now() + linger;
    bool any = true;
    while (!dead_ && (any || steady::now() < quiet_at)) {
        any = false;
        for (attended& each : lanes_) any |= serve(each);
        const bool kernel = expects_kernel();
        if (any) quiet_at = steady::now() + (kernel ? steady::duration{linger_for_kernel} : steady::duration{linger});
        const bool mine = std::any_of(lanes_.begin(), lanes_.end(), [](const attended& each) { return each.copying; });
        if (!any && !mine && !kernel) break;
    }
    for (attended& each : lanes_) stop_copying(each);
}

bool worker::serve(attended& which) {
    lane& jobs = *which.jobs;
    if (which.running) {
        finish_copies(which);
        return true;
    }
    if (jobs.kernel_waits()) {
        which.copying = false;
        jobs.grant();
        return true;
    }
    std::array<std::uint32_t, content_words> content{};
    if ((!which.copying && !jobs.unserved()) || !take_job(jobs.memory(), jobs.next(), content)) return false;
    if (!is_copy(content)) {
        stop_copying(which);
        return kernel_ != nullptr && (jobs.expects_kernel() || launch(which));
    }
    const bool starts_kernel = !which.copying && !jobs.expects_kernel() && wants_kernel();
    if (!which.copying && !jobs.expects_kernel() && !starts_kernel) which.service = jobs.begin_service();
    which.copying = true;
    begin_copies(which);
    return dead_ || !starts_kernel || launch(which);
}

/// All that are there, one behind the other.
void worker::begin_copies(attended& which) {
    std::array<std::uint32_t, content_words> content{};
    const std::uint32_t first = which.jobs->next();
    std::uint32_t count = 0;
    for (; count < copies_at_once && take_job(which.jobs->memory(), first + count, content); ++count)
        if (!is_copy(content) || !begin_copy(content, which, which.bounce + std::size_t{count} * inline_bytes)) break;
    if (count == 0) return;
    which.running = first + count - 1;
    which.since = steady::now();
}

bool worker::begin_copy(const std::array<std::uint32_t, content_words>& content, const attended& which,
                        std::byte* bounce) {
    const std::size_t size = content[0] >> size_shift;
    const CUdeviceptr memory = pair_of(content, 1);
    auto* host = reinterpret_cast<void*>(pair_of(content, 3));
    if ((content[0] & in_line_bit) != 0) {
        std::memcpy(bounce, &content[3], size);
        host = bounce;
    }
    const bool in = static_cast<action>(content[0] & 7) == action::write;
    const CUresult result = in ? calls_.cuMemcpyHtoDAsync(memory, host, size, which.copies)
                               : calls_.cuMemcpyDtoHAsync(host, memory, size, which.copies);
    return check(result, "a copy was refused");
}

void worker::finish_copies(attended& which) {
    const CUresult state = calls_.cuStreamQuery(which.copies);
    const bool in_time = steady::now() < which.since + std::chrono::milliseconds(options_.timeout_ms);
    if (state == CUDA_ERROR_NOT_READY && in_time) return;
    if (check(state, "a copy failed")) finish_job(which.jobs->memory(), *which.running);
    which.running.reset();
}

void worker::stop_copying(attended& which) {
    if (which.service != 0) leave(which.jobs->memory(), which.service);
    which.service = 0;
    which.copying = false;
}

void worker::stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    dead_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, longest_stop, [this] { return parked_; });
}

}  // namespace accel::softnic::gpu
