// SPDX-License-Identifier: Apache-2.0
// Four processes that reduce and broadcast vectors by the distribution's gloo, over its verbs transport. Every element
// is compared.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gloo/algorithm.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int ranks = 4;
constexpr int sizes[] = {1, 64, 4096, 300'000};

std::int64_t element(int rank, int size, int index) {
    return std::int64_t{rank + 1} * (index + 1) + size;
}

std::vector<std::int64_t> vector_of(int rank, int size) {
    std::vector<std::int64_t> out;
    for (int i = 0; i < size; ++i) out.push_back(element(rank, size, i));
    return out;
}

bool is_sum(const std::vector<std::int64_t>& got) {
    const int size = static_cast<int>(got.size());
    for (int i = 0; i < size; ++i) {
        std::int64_t wanted = 0;
        for (int rank = 0; rank < ranks; ++rank) wanted += element(rank, size, i);
        if (got[static_cast<std::size_t>(i)] != wanted) return false;
    }
    return true;
}

/// gloo refuses to destroy what a send has not completed of, and has no way to wait for that: it all stays.
std::vector<std::unique_ptr<gloo::Algorithm>> kept;

template <class Algorithm, class... Arguments>
void run_kept(const Arguments&... arguments) {
    kept.push_back(std::make_unique<Algorithm>(arguments...));
    kept.back()->run();
}

bool is_right(const std::shared_ptr<gloo::Context>& context, int size) {
    static std::deque<std::vector<std::int64_t>> vectors;  // as long as what is kept
    const auto next = [&] {
        return std::vector<std::int64_t*>{vectors.emplace_back(vector_of(context->rank, size)).data()};
    };
    run_kept<gloo::AllreduceRingChunked<std::int64_t>>(context, next(), size);
    if (!is_sum(vectors.back())) return false;
    run_kept<gloo::AllreduceHalvingDoubling<std::int64_t>>(context, next(), size);
    if (!is_sum(vectors.back())) return false;
    run_kept<gloo::BroadcastOneToAll<std::int64_t>>(context, next(), size);
    return vectors.back() == vector_of(0, size);
}

/// No process ends before the others have all they need of it.
void wait_for_all(gloo::rendezvous::Store& store, int rank) {
    std::vector<std::string> all;
    for (int each = 0; each < ranks; ++each) all.push_back("done-" + std::to_string(each));
    store.set(all[static_cast<std::size_t>(rank)], {'1'});
    store.wait(all, std::chrono::seconds{30});
}

/// Whether all elements were right.
bool run(int rank, const std::string& folder) {
    gloo::rendezvous::FileStore store{folder};
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::ibverbs::CreateDevice({.name = "mlx5_0", .port = 1, .index = 0});
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    const bool right = std::ranges::all_of(sizes, [&](int size) { return is_right(context, size); });
    wait_for_all(store, rank);
    return right;
}

[[noreturn]] void run_and_end(int rank, const std::string& folder) {
    const char* said = "its elements were right";
    bool right = false;
    try {
        right = run(rank, folder);
        if (!right) said = "wrong elements";
    } catch (const std::exception& failure) {
        said = failure.what();
    }
    std::printf("rank %d of %d: %s\n", rank, ranks, said);
    std::fflush(stdout);
    std::_Exit(right ? 0 : 1);
}

}  // namespace

int main() {
    std::string folder = "/tmp/softnic-gloo-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return 1;
    for (int rank = 0; rank < ranks; ++rank)
        if (fork() == 0) run_and_end(rank, folder);
    int failed = 0;
    for (int status = 0; wait(&status) > 0;) failed += status != 0 ? 1 : 0;
    std::filesystem::remove_all(folder);
    return failed == 0 ? 0 : 1;
}
