// SPDX-License-Identifier: Apache-2.0
#include "core/control/data_preamble.hpp"

#include "core/tls/tls_stream.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace accel::core {

std::optional<data_preamble> read_data_preamble(std::span<const std::byte> bytes, std::string& why) {
    data_preamble shown;
    if (bytes.size() < sizeof shown) return std::nullopt;
    std::memcpy(&shown, bytes.data(), sizeof shown);
    if (shown.magic != data_preamble{}.magic) {
        why = "it does not speak this protocol";
        return std::nullopt;
    }
    if (shown.version != protocol_version) {
        why = fmt::format("its protocol version is {}, this end speaks {}", shown.version, protocol_version);
        return std::nullopt;
    }
    return shown;
}

std::vector<std::byte> encode_data_answer(status code, std::string_view why) {
    why = why.substr(0, max_data_answer_bytes - data_answer_head_bytes);
    std::vector<std::byte> out(data_answer_head_bytes + why.size());
    const auto number = static_cast<std::uint16_t>(code);
    const auto length = static_cast<std::uint16_t>(why.size());
    std::memcpy(out.data(), &number, sizeof number);
    std::memcpy(out.data() + 2, &length, sizeof length);
    std::copy(why.begin(), why.end(), reinterpret_cast<char*>(out.data()) + data_answer_head_bytes);
    return out;
}

bool answer_data(data_connection& to, status code, std::string_view why) {
    const std::vector<std::byte> bytes = encode_data_answer(code, why);
    std::size_t sent = 0;
    return send_some(to.socket.get(), to.tls.get(), bytes, sent) == tls_outcome::done && sent == bytes.size();
}

error refuse_without_session() {
    return {no_session_waits, 0, "no session with this number waits for a connection"};
}

std::size_t data_answer_bytes(std::span<const std::byte, data_answer_head_bytes> head) noexcept {
    std::uint16_t number = 0;
    std::uint16_t length = 0;
    std::memcpy(&number, head.data(), sizeof number);
    std::memcpy(&length, head.data() + 2, sizeof length);
    const std::size_t bytes = data_answer_head_bytes + length;
    return number < status_count && bytes <= max_data_answer_bytes ? bytes : 0;
}

result<void> decode_data_answer(std::span<const std::byte> bytes) {
    std::uint16_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof number);
    if (number == 0) return {};
    const auto text = bytes.subspan(data_answer_head_bytes);
    std::string sentence(reinterpret_cast<const char*>(text.data()), text.size());
    std::replace_if(
        sentence.begin(), sentence.end(), [](char each) { return each < 0x20 || each > 0x7e; }, '?');
    return error{static_cast<status>(number), 0, fmt::format("the server refused the data connection: {}", sentence)};
}

result<void> as_told_to_applications(result<void> answer) {
    if (answer.code() != no_session_waits) return answer;
    return error{status::unauthorized, 0, answer.error().message};
}

}  // namespace accel::core
