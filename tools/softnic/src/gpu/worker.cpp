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
constexpr std::size_t lanes_bytes = 2 * sizeof(lane_memory);
constexpr std::size_t bounce_bytes = 64;
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
    const std::size_t bytes = lanes_bytes + bounce_bytes + copy_engine::staging_bytes;
    if (!check(calls_.cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
               "cannot allocate pinned memory"))
        return false;
    pinned_ = static_cast<std::byte*>(pinned);
    bounce_ = pinned_ + lanes_bytes;
    int lowest = 0;
    int highest = 0;
    calls_.cuCtxGetStreamPriorityRange(&lowest, &highest);
    for (CUstream& stream : streams_)
        if (!check(calls_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, highest), "cannot make a stream"))
            return false;
    if (!options_.copies_by_driver && !prepare_kernel()) return false;
    const std::chrono::milliseconds patience(options_.timeout_ms);
    for (std::size_t at = 0; at < lanes_.size(); ++at) {
        auto* memory = reinterpret_cast<lane_memory*>(pinned_) + at;
        lanes_[at] = std::make_unique<lane>(*memory, *this, patience);
    }
    engine_ = std::make_unique<copy_engine>(*lanes_[0], *lanes_[1], bounce_ + bounce_bytes, !options_.copies_by_driver);
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

void worker::work() {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !dead_) {
        changed_.wait(lock, [this] { return wanted_ || look_ || stopping_; });
        const bool look = look_;
        wanted_ = look_ = false;
        lock.unlock();
        copy_until_quiet();
        for (std::size_t at = 0; at < lanes_.size() && kernel_ != nullptr && !dead_; ++at)
            if (lanes_[at]->unserved() && lanes_[at]->has_work()) launch(*lanes_[at], streams_[at]);
        for (CUstream stream : streams_) {
            const CUresult state = look ? calls_.cuStreamQuery(stream) : CUDA_SUCCESS;
            if (state != CUDA_ERROR_NOT_READY && !dead_) check(state, "copies failed");
        }
        lock.lock();
    }
}

bool worker::launch(lane& which, CUstream stream) {
    lane_memory* memory = &which.memory();
    std::uint32_t number = which.next();
    std::uint32_t service = which.begin_service();
    const std::uint64_t chosen_ns = options_.idle_us * 1000;
    unsigned long long idle_ns = neighbours_.any() ? std::min(crowded_idle_ns, chosen_ns) : chosen_ns;
    unsigned long long stay_ns = options_.stay_ms * 1'000'000;
    void* arguments[]{&memory, &number, &service, &idle_ns, &stay_ns};
    return check(calls_.cuLaunchKernel(kernel_, 1, 1, 1, kernel_threads, 1, 1, 0, stream, arguments, nullptr),
                 "the copy kernel cannot be launched");
}

/// While others use the GPU their kernels and ours would have to take turns, which copies need not. The
/// driver has no atomics: those are the kernel's in any case.
bool worker::prefers_copies(lane& which) {
    if (options_.copies_by_driver) return true;
    std::array<std::uint32_t, content_words> content{};
    if (!neighbours_.any() || !take_job(which.memory(), which.next(), content)) return false;
    return is_copy(content);
}

void worker::take_over(std::size_t at) {
    lane& which = *lanes_[at];
    if (services_[at] == 0 && which.unserved() && which.has_work() && prefers_copies(which))
        services_[at] = which.begin_service();
}

void worker::give_up_service(std::size_t at) {
    if (services_[at] != 0) leave(lanes_[at]->memory(), services_[at]);
    services_[at] = 0;
}

/// Stays a little, as jobs come in rows.
void worker::copy_until_quiet() {
    auto quiet_at = steady::now() + linger;
    bool any = true;
    while (!dead_ && (any || steady::now() < quiet_at)) {
        any = false;
        for (std::size_t at = 0; at < lanes_.size(); ++at) {
            take_over(at);
            if (services_[at] != 0) copy_for(at, any);
        }
        if (any) quiet_at = steady::now() + linger;
        if (!any && services_ == std::array<std::uint32_t, 2>{}) break;
    }
    for (std::size_t at = 0; at < lanes_.size(); ++at) give_up_service(at);
}

void worker::copy_for(std::size_t at, bool& any) {
    std::array<std::uint32_t, content_words> content{};
    lane& which = *lanes_[at];
    const std::uint32_t number = which.next();
    if (dead_ || !take_job(which.memory(), number, content)) return;
    any = true;
    if (!is_copy(content)) return give_up_service(at);
    if (copy_one(content, streams_[at])) finish_job(which.memory(), number);
}

bool worker::copy_one(const std::array<std::uint32_t, content_words>& content, CUstream stream) {
    const std::size_t size = content[0] >> 4;
    const CUdeviceptr memory = pair_of(content, 1);
    auto* host = reinterpret_cast<void*>(pair_of(content, 3));
    if ((content[0] & 8) != 0) {
        std::memcpy(bounce_, &content[3], size);
        host = bounce_;
    }
    const bool in = static_cast<action>(content[0] & 7) == action::write;
    const CUresult result = in ? calls_.cuMemcpyHtoDAsync(memory, host, size, stream)
                               : calls_.cuMemcpyDtoHAsync(host, memory, size, stream);
    return check(result, "a copy was refused") && wait_for_copy(stream);
}

bool worker::wait_for_copy(CUstream stream) {
    const auto end = steady::now() + std::chrono::milliseconds(options_.timeout_ms);
    CUresult state = CUDA_ERROR_NOT_READY;
    while (state == CUDA_ERROR_NOT_READY && steady::now() < end) state = calls_.cuStreamQuery(stream);
    return check(state, "a copy failed");
}

void worker::stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    dead_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, longest_stop, [this] { return parked_; });
}

}  // namespace accel::softnic::gpu
