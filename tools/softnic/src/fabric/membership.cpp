// SPDX-License-Identifier: Apache-2.0
// How a process finds the shared file, takes a place in it, and leaves. A place is held by a lock on byte n
// of the file, which the kernel drops when the process dies, however it dies.
#include "fabric/fabric.hpp"
#include "fabric/shared_file.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

struct flock place_lock(int node, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = node;
    lock.l_len = 1;
    return lock;
}

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(fmt::format("softnic: {}: {}", what, shared_memory_trouble(errno)));
}

/// A second open file description of the same file, so that its locks are ours alone.
int reopen(int file) {
    const int again = ::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDWR | O_CLOEXEC);
    if (again < 0) fail("cannot reopen the fabric");
    return again;
}

/// Once: packets are tried again and again.
void report_loss(int number) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
        fmt::print(stderr, "softnic: packets do not get through: {}\n", shared_memory_trouble(number));
}

int open_shared(const std::string& path) {
    const int file = ::shm_open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) fail(fmt::format("cannot open fabric /dev/shm{}", path));
    return file;
}

}  // namespace

std::unique_ptr<fabric> fabric::join(const std::string& name, std::uint64_t configuration) {
    const auto path = file_name(name);
    while (true) {
        const int file = open_shared(path);
        std::unique_ptr<fabric> joined(new fabric(file, reopen(file)));
        if (::flock(file, LOCK_EX) != 0) fail("cannot lock the fabric");
        struct stat status {};
        if (::fstat(file, &status) != 0) fail("cannot inspect the fabric");
        if (status.st_nlink == 0) continue;  // its last process has just removed it
        joined->name_ = path;
        joined->open_segment(configuration);
        joined->take_place();
        ::flock(file, LOCK_UN);
        return joined;
    }
}

std::unique_ptr<fabric> fabric::create_private() {
    const int file = ::memfd_create("softnic-fabric", MFD_CLOEXEC);
    if (file < 0) fail("cannot create a private fabric");
    std::unique_ptr<fabric> created(new fabric(file, reopen(file)));
    created->open_segment(0);
    created->take_place();
    return created;
}

std::unique_ptr<fabric> fabric::join_peer(const fabric& peer) {
    const int file = reopen(peer.file_);
    std::unique_ptr<fabric> joined(new fabric(file, reopen(file)));
    joined->open_segment(0);
    joined->take_place();
    return joined;
}

fabric::fabric(int file, int lock_file) : file_(file), lock_file_(lock_file) {}

fabric::~fabric() {
    leave();
    for (auto* rings : {&outbound_, &inbound_}) {
        for (packet_ring* ring : *rings)
            if (ring != nullptr) ::munmap(ring, sizeof *ring);
    }
    if (header_ != nullptr) ::munmap(header_, sizeof *header_);
    if (file_ >= 0) ::close(file_);
    if (lock_file_ >= 0) ::close(lock_file_);
}

/// The first process to come sizes and stamps the file; the whole-file lock keeps the others waiting
/// meanwhile.
void fabric::open_segment(std::uint64_t configuration) {
    struct stat status {};
    if (::fstat(file_, &status) != 0) fail("cannot inspect the fabric");
    const bool fresh = status.st_size == 0;
    if (!take_memory(file_, 0, sizeof(segment_header))) fail("no memory for the fabric");
    if (fresh && !set_length(file_, segment_bytes)) fail("cannot size the fabric");
    if (!fresh && static_cast<std::size_t>(status.st_size) != segment_bytes) {
        errno = EPROTO;
        fail("another version of softnic made the fabric; remove it from /dev/shm or choose another name");
    }
    void* mapping = ::mmap(nullptr, sizeof(segment_header), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapping == MAP_FAILED) fail("cannot map the fabric");
    header_ = static_cast<segment_header*>(mapping);
    if (header_->magic.load(std::memory_order_acquire) == 0) {
        header_->version = segment_version;
        header_->configuration = configuration;
        header_->magic.store(segment_magic, std::memory_order_release);
    }
    if (header_->magic != segment_magic || header_->version != segment_version) {
        errno = EPROTO;
        fail("another version of softnic made the fabric");
    }
    if (header_->configuration != configuration) {
        errno = EINVAL;
        fail(
            "the processes in this fabric use another list of devices (SOFTNIC_DEVICES) or another link "
            "(SOFTNIC_LINK)");
    }
}

bool fabric::lock_place(int node) {
    auto lock = place_lock(node, F_WRLCK);
    return ::fcntl(lock_file_, F_OFD_SETLK, &lock) == 0;
}

void fabric::unlock_place(int node) {
    auto lock = place_lock(node, F_UNLCK);
    ::fcntl(lock_file_, F_OFD_SETLK, &lock);
}

bool fabric::is_dead(int node) const {
    auto probe = place_lock(node, F_WRLCK);
    return ::fcntl(lock_file_, F_OFD_GETLK, &probe) == 0 && probe.l_type == F_UNLCK;
}

void fabric::take_place() {
    for (int node = 0; node < max_nodes; ++node) {
        if (!lock_place(node)) continue;
        if (static_cast<node_state>(record(node).state.load()) != node_state::free) clear_place(node);
        node_ = node;
        break;
    }
    if (node_ < 0) {
        errno = EUSERS;
        fail(fmt::format("all {} places in the fabric are taken", max_nodes));
    }
    node_record& self = record(node_);
    self.sleeping = 0;
    self.leaving = 0;
    self.timed_messages = 0;
    self.late_messages = 0;
    self.lateness_ns = 0;
    self.threads_ns = 0;
    self.helped_ns = 0;
    // What was sent to the place's last owner is not for us.
    for (std::uint64_t senders = self.senders.exchange(0); senders != 0; senders &= senders - 1) {
        packet_ring* ring = inbound(__builtin_ctzll(senders));
        if (ring != nullptr) ring->tail.store(ring->head.load());
    }
    self.process = ::getpid();
    self.state.store(static_cast<std::uint32_t>(node_state::alive), std::memory_order_release);
}

void fabric::leave() {
    if (node_ < 0) return;
    clear_place(node_);
    unlock_place(node_);
    node_ = -1;
}

void fabric::abandon() {
    node_ = -1;
    if (lock_file_ >= 0) ::close(lock_file_);
    lock_file_ = -1;
}

packet_ring* fabric::map_ring(int from, int to) {
    const std::uint32_t slots = from == to ? own_slots_ : ring_slots;
    const std::size_t used = offsetof(packet_ring, slots) + slots * sizeof(packet);
    if (!take_memory(file_, ring_offset(from, to), used)) {
        report_loss(errno);
        return nullptr;
    }
    void* mapping = ::mmap(nullptr, sizeof(packet_ring), PROT_READ | PROT_WRITE, MAP_SHARED, file_,
                           static_cast<off_t>(ring_offset(from, to)));
    return mapping == MAP_FAILED ? nullptr : static_cast<packet_ring*>(mapping);
}

}  // namespace accel::softnic
