// SPDX-License-Identifier: Apache-2.0
// A file of bearer tokens, and what a client sends as its token: the length of the latter (byte 0), then both.
#include "fuzz_target.hpp"
#include "serving/doors/access/tokens.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using accel::examples::serving::access::token_list;
using accel::tests::require;

/// Whether a line of the file, without the blanks around it, is this token.
bool has_line(std::string_view text, std::string_view token) {
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        while (!line.empty() && std::string_view{" \t\r"}.find(line.front()) != std::string_view::npos)
            line.remove_prefix(1);
        while (!line.empty() && std::string_view{" \t\r"}.find(line.back()) != std::string_view::npos)
            line.remove_suffix(1);
        if (line == token) return true;
    }
    return false;
}

void check_file(std::string_view text) {
    const int fd = memfd_create("tokens", MFD_CLOEXEC);
    require(fd >= 0 && fchmod(fd, 0600) == 0, "a file can be made");
    require(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "and written");
    const auto read = token_list::read("/proc/self/fd/" + std::to_string(fd));
    require(static_cast<bool>(read) == static_cast<bool>(token_list::parse(text)), "a file is read as its text");
    close(fd);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    accel::tests::input_reader input{data, size};
    const std::size_t given_bytes = input.byte();
    const auto text_of = [](std::span<const std::uint8_t> bytes) {
        return std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    };
    const std::string_view given = text_of(input.bytes(given_bytes));
    const std::string_view text = text_of(input.rest());
    if (given_bytes % 16 == 0) check_file(text);  // a file takes long
    auto read = token_list::parse(text);
    if (!read) {
        require(!read.error().message.empty(), "a refusal has a sentence");
        return 0;
    }
    require(!read->empty(), "a list that was read has a token");
    require(!read->allow({}) && !read->allow("Bearer ") && !read->allow("Bearer"), "no token is no token");
    static_cast<void>(read->allow(given));
    if (given.find_first_of(" \t\r\n#") == std::string_view::npos && !given.empty())
        require(read->allow("Bearer " + std::string{given}) == has_line(text, given),
                "the file's tokens are let in alone");
    return 0;
}
