// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/credentials.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <zmq.h>

namespace accel::zmq {
namespace {

using z85_text = std::array<char, 41>;

bool decode(const z85_text& text, curve_key& key) noexcept {
    return zmq_z85_decode(reinterpret_cast<std::uint8_t*>(key.data()), text.data()) != nullptr;
}

}  // namespace

void wipe(std::span<std::byte> secret) noexcept {
    ::explicit_bzero(secret.data(), secret.size());
}

result<key_pair> key_pair::make() {
    z85_text public_text{};
    z85_text secret_text{};
    key_pair made;
    const bool good = zmq_curve_keypair(public_text.data(), secret_text.data()) == 0 &&
                      decode(public_text, made.public_) && decode(secret_text, made.secret_);
    const int native = good ? 0 : zmq_errno();
    wipe(std::as_writable_bytes(std::span{secret_text}));
    if (good) return made;
    return error{status::unsupported, native,
                 fmt::format("ZeroMQ cannot make keys: {}; it may have been built without CURVE (Debian's libzmq5 has "
                             "it)",
                             zmq_strerror(native))};
}

key_pair::key_pair(key_pair&& other) noexcept : public_(other.public_), secret_(other.secret_) {
    wipe(other.secret_);
}

key_pair& key_pair::operator=(key_pair&& other) noexcept {
    if (this == &other) return *this;
    public_ = other.public_;
    secret_ = other.secret_;
    wipe(other.secret_);
    return *this;
}

error refused_credentials() {
    const int native = zmq_errno();
    return {native == EINVAL ? status::unsupported : status::system_error, native,
            fmt::format("ZeroMQ rejects the session's credentials: {}; it may have been built without CURVE (Debian's "
                        "libzmq5 has it)",
                        zmq_strerror(native))};
}

}  // namespace accel::zmq
