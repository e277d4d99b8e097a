// SPDX-License-Identifier: Apache-2.0
#include "wqe/send_request.hpp"

#include "wqe/bytes.hpp"

#include <algorithm>

#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

constexpr std::size_t usual_segments = 4;
constexpr std::uint8_t opcode_dump = 0x23;  ///< reads local memory, and sends nothing

struct opcode_row {
    std::uint8_t opcode;
    operation kind;
    bool immediate;
    bool invalidate;
    bool datagram;  ///< allowed on a UD queue pair
};

constexpr std::array opcodes{
    opcode_row{MLX5_OPCODE_NOP, operation::nop, false, false, true},
    opcode_row{MLX5_OPCODE_SEND, operation::send, false, false, true},
    opcode_row{MLX5_OPCODE_SEND_IMM, operation::send, true, false, true},
    opcode_row{MLX5_OPCODE_SEND_INVAL, operation::send, false, true, false},
    opcode_row{MLX5_OPCODE_RDMA_WRITE, operation::write, false, false, false},
    opcode_row{MLX5_OPCODE_RDMA_WRITE_IMM, operation::write, true, false, false},
    opcode_row{MLX5_OPCODE_RDMA_READ, operation::read, false, false, false},
    opcode_row{MLX5_OPCODE_ATOMIC_CS, operation::atomic, false, false, false},
    opcode_row{MLX5_OPCODE_ATOMIC_FA, operation::atomic, false, false, false},
    opcode_row{MLX5_OPCODE_ATOMIC_MASKED_CS, operation::atomic, false, false, false},
    opcode_row{MLX5_OPCODE_ATOMIC_MASKED_FA, operation::atomic, false, false, false},
    opcode_row{opcode_dump, operation::dump, false, false, false},
    opcode_row{MLX5_OPCODE_UMR, operation::bind, false, false, false},
};

/// The unread rest of a WQE.
class cursor {
  public:
    explicit cursor(std::span<const std::byte> rest) : rest_(rest) {}

    template <class T>
    [[nodiscard]] bool take(T& value) {
        if (rest_.size() < sizeof value) return false;
        value = load_as<T>(rest_);
        rest_ = rest_.subspan(sizeof value);
        return true;
    }
    [[nodiscard]] bool skip(std::size_t size_bytes) {
        if (rest_.size() < size_bytes) return false;
        rest_ = rest_.subspan(size_bytes);
        return true;
    }
    [[nodiscard]] std::span<const std::byte> rest() const { return rest_; }

  private:
    std::span<const std::byte> rest_;
};

bool take_remote(cursor& at, send_request& out) {
    mlx5_wqe_raddr_seg remote;
    if (!at.take(remote)) return false;
    out.remote_address = be64toh(remote.raddr);
    out.rkey = be32toh(remote.rkey);
    return true;
}

bool take_ordinary_atomic(cursor& at, send_request& out) {
    mlx5_wqe_atomic_seg atomic;
    if (!at.take(atomic)) return false;
    out.atomic.swap_or_add = be64toh(atomic.swap_add);
    out.atomic.compare = be64toh(atomic.compare);
    return true;
}

/// Operands of 4 bytes: all in one segment.
bool take_masked_narrow(cursor& at, atomic_operation& out) {
    std::array<std::uint32_t, 4> words;
    if (!at.take(words)) return false;
    out.swap_or_add = be32toh(words[0]);
    if (out.compare_swap) {
        out.compare = be32toh(words[1]);
        out.swap_mask = be32toh(words[2]);
        out.compare_mask = be32toh(words[3]);
    } else {
        out.boundary = be32toh(words[1]);
    }
    return true;
}

/// Operands of 8 bytes: the masks of a compare and swap are in a second segment.
bool take_masked_wide(cursor& at, atomic_operation& out) {
    std::array<std::uint64_t, 2> values;
    if (!at.take(values)) return false;
    out.swap_or_add = be64toh(values[0]);
    if (!out.compare_swap) {
        out.boundary = be64toh(values[1]);
        return true;
    }
    out.compare = be64toh(values[1]);
    if (!at.take(values)) return false;
    out.swap_mask = be64toh(values[0]);
    out.compare_mask = be64toh(values[1]);
    return true;
}

/// A masked atomic says in the upper byte of its first word how long its operands are.
bool take_atomic(cursor& at, std::uint8_t modifier, send_request& out) {
    constexpr std::uint8_t masked_4_bytes = 0x08;
    constexpr std::uint8_t masked_8_bytes = 0x09;
    out.atomic = {};
    out.atomic.compare_swap = out.opcode == MLX5_OPCODE_ATOMIC_CS || out.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
    if (out.opcode == MLX5_OPCODE_ATOMIC_CS || out.opcode == MLX5_OPCODE_ATOMIC_FA)
        return take_ordinary_atomic(at, out);
    if (modifier == masked_8_bytes) return take_masked_wide(at, out.atomic);
    out.atomic.bytes = 4;
    return modifier == masked_4_bytes && take_masked_narrow(at, out.atomic);
}

/// The short form has no room for a GRH: 16 bytes instead of 48, told apart by the extension bit.
bool take_datagram(cursor& at, bool ethernet, datagram_address& out) {
    constexpr std::uint32_t extended = 1u << 31;
    constexpr std::uint32_t global = 1u << 30;
    mlx5_wqe_av av{};
    if (at.rest().size() < 16) return false;
    std::memcpy(&av, at.rest().data(), 16);
    const std::uint32_t target = be32toh(av.dqp_dct);
    if ((target & extended) != 0) {
        if (!at.take(av)) return false;
    } else if (!at.skip(16)) {
        return false;
    }
    const std::uint32_t route = be32toh(av.grh_gid_fl);
    out = datagram_address{};
    out.qpn = target & 0xffffff;
    out.qkey = be32toh(av.key.qkey.qkey);
    out.access_key = be64toh(av.key.dc_key);
    out.dlid = be16toh(av.rlid);
    out.service_level = av.stat_rate_sl & 0xf;
    out.has_grh = (route & global) != 0 || (ethernet && (target & extended) != 0);
    out.gid_index = static_cast<std::uint8_t>(route >> 20);
    out.flow_label = route & 0xfffff;
    out.hop_limit = av.hop_limit;
    out.traffic_class = av.tclass;
    std::copy(std::begin(av.rgid), std::end(av.rgid), out.gid.begin());
    return true;
}

bool take_inline(cursor& at, std::uint32_t length, send_request& out) {
    const std::size_t padded = (length + sizeof(mlx5_wqe_inl_data_seg) + 15) & ~std::size_t{15};
    const auto bytes = at.rest();
    if (bytes.size() < sizeof(mlx5_wqe_inl_data_seg) + length) return false;
    out.segments.push_back({out.inlined.size(), length, 0, true});
    const auto data = bytes.subspan(sizeof(mlx5_wqe_inl_data_seg), length);
    out.inlined.insert(out.inlined.end(), data.begin(), data.end());
    return at.skip(std::min(padded, bytes.size()));
}

/// A pointer of length zero means 2 GiB to the hardware; libmlx5 never writes one, and it is over our limit.
bool take_pointer(cursor& at, send_request& out, std::uint64_t& length) {
    mlx5_wqe_data_seg data;
    if (!at.take(data)) return false;
    if (be32toh(data.lkey) == MLX5_INVALID_LKEY) return true;
    const std::uint32_t bytes = be32toh(data.byte_count);
    out.segments.push_back({be64toh(data.addr), bytes, be32toh(data.lkey), false});
    length += bytes == 0 ? std::uint64_t{1} << 31 : bytes;
    return true;
}

std::uint32_t window_access(std::uint8_t flags) {
    std::uint32_t out = 0;
    if ((flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE) != 0) out |= IBV_ACCESS_REMOTE_WRITE;
    if ((flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ) != 0) out |= IBV_ACCESS_REMOTE_READ;
    if ((flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC) != 0) out |= IBV_ACCESS_REMOTE_ATOMIC;
    return out;
}

/// UMR changes keys in many ways. libmlx5 binds and frees memory windows by it: one KLM in the WQE, or none.
decode_status take_window(cursor at, std::uint32_t key, send_request& out) {
    mlx5_wqe_umr_ctrl_seg control;
    mlx5_wqe_mkey_context_seg context;
    if (!at.take(control) || !at.take(context)) return decode_status::empty;
    constexpr std::uint64_t new_key = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    const bool changes_key = (be64toh(control.mkey_mask) & new_key) == new_key;
    if ((control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) == 0 || !changes_key) return decode_status::bad_segment;
    out.window = {};
    out.window.key = key;
    out.window.variant = static_cast<std::uint8_t>(be32toh(context.qpn_mkey));
    if ((context.free & MLX5_WQE_MKEY_CONTEXT_FREE) != 0) return decode_status::ok;
    mlx5_wqe_umr_klm_seg target;
    if (!at.take(target)) return decode_status::empty;
    out.window.lkey = be32toh(target.mkey);
    out.window.address = be64toh(target.address);
    out.window.length = be64toh(context.len);
    out.window.access = window_access(context.access_flags);
    const bool same =
        be32toh(target.byte_count) == out.window.length && be64toh(context.start_addr) == out.window.address;
    return same && out.window.length != 0 ? decode_status::ok : decode_status::bad_segment;
}

decode_status take_data(cursor at, send_request& out) {
    std::uint64_t length = 0;
    while (!at.rest().empty()) {
        if (at.rest().size() < sizeof(std::uint32_t)) return decode_status::bad_segment;
        const std::uint32_t word = be32toh(load_as<std::uint32_t>(at.rest()));
        if ((word & MLX5_INLINE_SEG) != 0) {
            const std::uint32_t bytes = word & ~static_cast<std::uint32_t>(MLX5_INLINE_SEG);
            if (bytes > max_send_wqe_bytes || !take_inline(at, bytes, out)) return decode_status::bad_segment;
            length += bytes;
        } else if (!take_pointer(at, out, length)) {
            return decode_status::bad_segment;
        }
    }
    if (length > max_message_bytes) return decode_status::too_long;
    out.length = static_cast<std::uint32_t>(length);
    return decode_status::ok;
}

const opcode_row* find_opcode(std::uint8_t opcode, bool datagram) {
    for (const auto& row : opcodes)
        if (row.opcode == opcode && (row.datagram || !datagram)) return &row;
    return nullptr;
}

void start(send_request& out, const send_expectation& expected) {
    out.index = expected.index;
    out.wqebbs = 1;
    out.length = 0;
    out.segments.clear();
    out.segments.reserve(usual_segments);
    out.inlined.clear();
}

void take_control(const mlx5_wqe_ctrl_seg& control, const opcode_row& row, send_request& out) {
    constexpr std::uint8_t fence_bits = MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    out.kind = row.kind;
    out.has_immediate = row.immediate;
    out.invalidates = row.invalidate;
    out.immediate = control.imm;
    out.signalled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    out.solicited = (control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0;
    out.fenced = (control.fm_ce_se & fence_bits) != 0;
}

decode_status take_body(cursor at, const send_expectation& expected, std::uint8_t modifier, send_request& out) {
    if (out.kind == operation::nop) return decode_status::ok;
    if (out.kind == operation::bind) return take_window(at, be32toh(out.immediate), out);
    const bool addressed = expected.datagram || (expected.dynamic && !out.is_local());
    if (addressed && !take_datagram(at, expected.ethernet, out.destination)) return decode_status::empty;
    const bool remote = out.kind == operation::write || out.needs_response();
    if (remote && !take_remote(at, out)) return decode_status::empty;
    if (out.is_atomic() && !take_atomic(at, modifier, out)) return decode_status::empty;
    const decode_status status = take_data(at, out);
    if (status == decode_status::ok && out.is_atomic() && out.length != out.atomic.bytes)
        return decode_status::bad_segment;
    return status;
}

}  // namespace

std::string_view to_string(decode_status status) {
    switch (status) {
        case decode_status::ok:
            return "ok";
        case decode_status::empty:
            return "too few segments";
        case decode_status::wrong_queue:
            return "queue pair number is not this one";
        case decode_status::wrong_index:
            return "index is not the next one: stale, or written after the doorbell";
        case decode_status::unknown_opcode:
            return "opcode not supported here";
        case decode_status::bad_segment:
            return "segment runs past the end";
        case decode_status::too_long:
            return "message too long";
    }
    return "?";
}

std::size_t send_wqe_bytes(std::span<const std::byte, 16> control) {
    const auto head = load_as<mlx5_wqe_ctrl_seg>(control);
    return (be32toh(head.qpn_ds) & 0x3f) * std::size_t{16};
}

decode_status decode_send(std::span<const std::byte> wqe, const send_expectation& expected, send_request& out) {
    start(out, expected);
    cursor at(wqe);
    mlx5_wqe_ctrl_seg control;
    if (!at.take(control)) return decode_status::empty;
    const std::uint32_t head = be32toh(control.opmod_idx_opcode);
    const std::uint32_t qpn_ds = be32toh(control.qpn_ds);
    const std::size_t size = (qpn_ds & 0x3f) * std::size_t{16};
    out.opcode = static_cast<std::uint8_t>(head);
    if (size == 0 || size > wqe.size()) return decode_status::empty;
    if (((head >> 8) & 0xffff) != expected.index) return decode_status::wrong_index;
    if (qpn_ds >> 8 != expected.qpn) return decode_status::wrong_queue;
    out.wqebbs = static_cast<std::uint16_t>((size + wqebb_bytes - 1) / wqebb_bytes);
    const opcode_row* row = find_opcode(out.opcode, expected.datagram);
    if (row == nullptr) return decode_status::unknown_opcode;
    take_control(control, *row, out);
    return take_body(cursor(wqe.first(size).subspan(sizeof control)), expected, static_cast<std::uint8_t>(head >> 24),
                     out);
}

void decode_receive(std::span<const std::byte> wqe, std::vector<segment>& out) {
    out.clear();
    cursor at(wqe);
    mlx5_wqe_data_seg data;
    while (at.take(data)) {
        if (be32toh(data.lkey) == MLX5_INVALID_LKEY) return;
        out.push_back({be64toh(data.addr), be32toh(data.byte_count), be32toh(data.lkey), false});
    }
}

}  // namespace accel::softnic
