// SPDX-License-Identifier: Apache-2.0
#include "ucx_peer.hpp"

#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

namespace accel::softnic::testing {
namespace {

constexpr std::size_t window_bytes = 1 << 20;
constexpr unsigned message_id = 7;
using steady = std::chrono::steady_clock;

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

/// So that a test fails instead of hanging.
class deadline {
  public:
    explicit deadline(const char* what) : what_(what) {}
    void check() const {
        if (steady::now() > end_) throw std::runtime_error(std::string(what_) + ": nothing came");
    }

  private:
    const char* what_;
    steady::time_point end_ = steady::now() + std::chrono::seconds(40);
};

}  // namespace

std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t at = 0; at < size; ++at)
        bytes[at] = static_cast<std::uint8_t>((at * 31 + at / 251 + seed * 97) & 0xff);
    return bytes;
}

ucx_peer::ucx_peer(int rank, int socket) : rank_(rank), socket_(socket), window_(window_bytes) {
    open();
    exchange_addresses();
    exchange_windows();
}

ucx_peer::~ucx_peer() {
    ucp_rkey_destroy(key_);
    ucp_mem_unmap(context_, memory_);
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
}

void ucx_peer::open() {
    ucp_params_t wants{};
    wants.field_mask = UCP_PARAM_FIELD_FEATURES;
    wants.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM;
    check(ucp_init(&wants, nullptr, &context_), "ucp_init");
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context_, &how, &worker_), "worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = message_id;
    handler.arg = this;
    handler.cb = [](void* self, const void*, std::size_t, void* data, std::size_t size,
                    const ucp_am_recv_param_t* details) {
        return static_cast<ucx_peer*>(self)->on_active_message(data, size, details->recv_attr);
    };
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "handler");
}

void ucx_peer::exchange_addresses() {
    ucp_address_t* mine = nullptr;
    std::size_t size = 0;
    check(ucp_worker_get_address(worker_, &mine, &size), "address");
    const auto theirs = swap_blobs(mine, size);
    ucp_worker_release_address(worker_, mine);
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address = reinterpret_cast<const ucp_address_t*>(theirs.data());
    check(ucp_ep_create(worker_, &to, &endpoint_), "endpoint");
}

void ucx_peer::exchange_windows() {
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = window_.data();
    map.length = window_.size();
    check(ucp_mem_map(context_, &map, &memory_), "registration");
    void* packed = nullptr;
    std::size_t size = 0;
    check(ucp_rkey_pack(context_, memory_, &packed, &size), "key");
    const auto key = swap_blobs(packed, size);
    ucp_rkey_buffer_release(packed);
    check(ucp_ep_rkey_unpack(endpoint_, key.data(), &key_), "their key");
    const auto base = reinterpret_cast<std::uint64_t>(window_.data());
    const auto theirs = swap_blobs(&base, sizeof base);
    std::memcpy(&remote_, theirs.data(), sizeof remote_);
}

std::vector<std::uint8_t> ucx_peer::swap_blobs(const void* bytes, std::size_t size) {
    send_all(&size, sizeof size);
    send_all(bytes, size);
    std::size_t coming = 0;
    receive_all(&coming, sizeof coming);
    std::vector<std::uint8_t> theirs(coming);
    receive_all(theirs.data(), coming);
    return theirs;
}

void ucx_peer::send_all(const void* bytes, std::size_t size) {
    if (::send(socket_, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
        throw std::runtime_error("the other side has gone");
}

/// UCX goes on meanwhile: the other side may need it to.
void ucx_peer::receive_all(void* bytes, std::size_t size) {
    const deadline end("socket");
    auto* to = static_cast<std::uint8_t*>(bytes);
    while (size > 0) {
        ucp_worker_progress(worker_);
        end.check();
        const ssize_t got = ::recv(socket_, to, size, MSG_DONTWAIT);
        if (got == 0) throw std::runtime_error("the other side has gone");
        if (got < 0) continue;
        to += got;
        size -= static_cast<std::size_t>(got);
    }
}

void ucx_peer::barrier() {
    const std::uint8_t here = 1;
    swap_blobs(&here, 1);
}

void ucx_peer::expect(const std::vector<std::uint8_t>& seen, const std::vector<std::uint8_t>& wanted,
                      const char* what) const {
    if (seen == wanted) return;
    throw std::runtime_error(std::string(what) + ": wrong bytes in a message of " + std::to_string(wanted.size()));
}

void ucx_peer::wait(void* request, const char* what) {
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), what);
    const deadline end(what);
    ucs_status_t status = UCS_INPROGRESS;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker_);
        end.check();
    }
    ucp_request_free(request);
    check(status, what);
}

void ucx_peer::send_tagged(std::uint64_t tag, const std::vector<std::uint8_t>& bytes) {
    const ucp_request_param_t none{};
    wait(ucp_tag_send_nbx(endpoint_, bytes.data(), bytes.size(), tag, &none), "tag send");
}

std::vector<std::uint8_t> ucx_peer::receive_tagged(std::uint64_t tag, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    const ucp_request_param_t none{};
    wait(ucp_tag_recv_nbx(worker_, bytes.data(), size, tag, ~std::uint64_t{0}, &none), "tag receive");
    return bytes;
}

void ucx_peer::send_active_message(const std::vector<std::uint8_t>& bytes) {
    const ucp_request_param_t none{};
    wait(ucp_am_send_nbx(endpoint_, message_id, nullptr, 0, bytes.data(), bytes.size(), &none), "am send");
}

ucs_status_t ucx_peer::on_active_message(void* data, std::size_t size, std::uint64_t attributes) {
    message& next = messages_.emplace_back();
    next.bytes.resize(size);
    if ((attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        std::memcpy(next.bytes.data(), data, size);
        return UCS_OK;
    }
    const ucp_request_param_t none{};
    next.request = ucp_am_recv_data_nbx(worker_, data, next.bytes.data(), size, &none);
    return UCS_INPROGRESS;
}

std::vector<std::uint8_t> ucx_peer::receive_active_message() {
    const deadline end("am");
    while (messages_.empty()) {
        ucp_worker_progress(worker_);
        end.check();
    }
    wait(messages_.front().request, "am receive");
    auto bytes = std::move(messages_.front().bytes);
    messages_.pop_front();
    return bytes;
}

void ucx_peer::put(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
    const ucp_request_param_t none{};
    wait(ucp_put_nbx(endpoint_, bytes.data(), bytes.size(), remote_ + offset, key_, &none), "put");
    flush();
}

std::vector<std::uint8_t> ucx_peer::get(std::size_t offset, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    const ucp_request_param_t none{};
    wait(ucp_get_nbx(endpoint_, bytes.data(), size, remote_ + offset, key_, &none), "get");
    return bytes;
}

std::uint64_t ucx_peer::fetch(ucp_atomic_op_t operation, std::uint64_t value, std::uint64_t expected,
                              std::size_t offset) {
    // Compare and swap takes the expected value in `buffer`, and the new one in the reply's place.
    const bool compares = operation == UCP_ATOMIC_OP_CSWAP;
    std::uint64_t operand = compares ? expected : value;
    std::uint64_t reply = compares ? value : 0;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    how.datatype = ucp_dt_make_contig(sizeof reply);
    how.reply_buffer = &reply;
    wait(ucp_atomic_op_nbx(endpoint_, operation, &operand, 1, remote_ + offset, key_, &how), "atomic");
    return reply;
}

void ucx_peer::add(std::uint64_t value, std::size_t offset) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    how.datatype = ucp_dt_make_contig(sizeof value);
    wait(ucp_atomic_op_nbx(endpoint_, UCP_ATOMIC_OP_ADD, &value, 1, remote_ + offset, key_, &how), "add");
}

void ucx_peer::flush() {
    const ucp_request_param_t none{};
    wait(ucp_ep_flush_nbx(endpoint_, &none), "flush");
}

void ucx_peer::fill_window(const std::vector<std::uint8_t>& bytes) {
    std::memcpy(window_.data(), bytes.data(), bytes.size());
}

std::vector<std::uint8_t> ucx_peer::window(std::size_t offset, std::size_t size) const {
    const auto* from = window_.data() + offset;
    return {from, from + size};
}

}  // namespace accel::softnic::testing
