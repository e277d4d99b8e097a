// SPDX-License-Identifier: Apache-2.0
// Two processes move known bytes through UCX by tag, active message, put, get and atomics, and compare.
// ucx_perftest moves whatever lies in memory; this sees whether it arrived. Run it under softnic:
//   UCX_TLS=rc_x softnic run -- softnic_ucx_check
#include "softnic/softnic.h"
#include "ucx_peer.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace accel::softnic::testing;

constexpr std::array<std::size_t, 7> sizes{1, 8, 200, 4096, 5000, 70'000, 1'000'000};
constexpr std::uint64_t rounds = 30;

void by_tag(ucx_peer& peer, std::size_t size) {
    const std::uint64_t tag = size;
    if (peer.rank() == 0) peer.send_tagged(tag, pattern(size, 1));
    peer.expect(peer.receive_tagged(tag, size), pattern(size, peer.rank() == 0 ? 2 : 1), "tag");
    if (peer.rank() == 1) peer.send_tagged(tag, pattern(size, 2));
}

void by_active_message(ucx_peer& peer, std::size_t size) {
    peer.send_active_message(pattern(size, 3 + static_cast<unsigned>(peer.rank())));
    peer.expect(peer.receive_active_message(), pattern(size, 4 - static_cast<unsigned>(peer.rank())), "am");
}

void by_put(ucx_peer& peer, std::size_t size) {
    const auto mine = pattern(size, 5 + static_cast<unsigned>(peer.rank()));
    peer.put(mine, 0);
    peer.barrier();
    peer.expect(peer.window(0, size), pattern(size, 6 - static_cast<unsigned>(peer.rank())), "put");
    peer.barrier();
}

void by_get(ucx_peer& peer, std::size_t size) {
    peer.fill_window(pattern(size, 7 + static_cast<unsigned>(peer.rank())));
    peer.barrier();
    peer.expect(peer.get(0, size), pattern(size, 8 - static_cast<unsigned>(peer.rank())), "get");
    peer.barrier();
}

void require(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

/// Each side works on the other's words, so that every result is known.
void by_atomics(ucx_peer& peer) {
    peer.fill_window(std::vector<std::uint8_t>(64));
    peer.barrier();
    for (std::uint64_t round = 0; round < rounds; ++round) {
        require(peer.fetch(UCP_ATOMIC_OP_ADD, 3, 0, 0) == 3 * round, "fetch and add: not what was there");
        require(peer.fetch(UCP_ATOMIC_OP_SWAP, round + 1, 0, 8) == round, "swap: not what was there");
        require(peer.fetch(UCP_ATOMIC_OP_CSWAP, round + 1, round, 16) == round, "compare and swap failed");
        require(peer.fetch(UCP_ATOMIC_OP_CSWAP, 77, round, 16) == round + 1, "compare and swap took");
        peer.add(5, 24);
    }
    peer.flush();
    peer.barrier();
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), peer.window(0, sizeof words).data(), sizeof words);
    require(words == std::array<std::uint64_t, 4>{3 * rounds, rounds, rounds, 5 * rounds}, "atomics: wrong sums");
    peer.barrier();
}

int run(int rank, int socket) {
    try {
        ucx_peer peer(rank, socket);
        for (const std::size_t size : sizes) {
            by_tag(peer, size);
            by_active_message(peer, size);
            by_put(peer, size);
            by_get(peer, size);
        }
        by_atomics(peer);
        require(softnic_counter != nullptr && softnic_counter("wqes") > rounds, "not over softnic");
        peer.barrier();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "side %d: %s\n", rank, error.what());
        std::_Exit(EXIT_FAILURE);  // the other side notices, and UCX would wait for it
    }
    return EXIT_SUCCESS;
}

}  // namespace

int main() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return EXIT_FAILURE;
    const pid_t child = ::fork();
    ::close(ends[child == 0 ? 0 : 1]);
    if (child == 0) return run(1, ends[1]);
    const int mine = run(0, ends[0]);
    int theirs = 1;
    ::waitpid(child, &theirs, 0);
    if (mine == 0 && theirs == 0) std::puts("tag, am, put, get, atomics: every byte as it should be");
    return mine == 0 && theirs == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
