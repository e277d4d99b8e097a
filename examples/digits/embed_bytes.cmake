# SPDX-License-Identifier: Apache-2.0
# Writes SOURCE's bytes into OUTPUT, a C++ file that defines accel::examples::digits::FUNCTION().
# Run as: cmake -D SOURCE=... -D OUTPUT=... -D FUNCTION=... -P embed_bytes.cmake

file(READ "${SOURCE}" hexadecimal HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hexadecimal}")
file(WRITE "${OUTPUT}" "#include \"digits/embedded.hpp\"

namespace accel::examples::digits {
namespace {
alignas(64) constexpr unsigned char contents[] = {${bytes}};
}  // namespace

std::span<const std::byte> ${FUNCTION}() noexcept {
    return std::as_bytes(std::span(contents));
}
}  // namespace accel::examples::digits
")
