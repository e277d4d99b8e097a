// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/access/private_file.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::access {
namespace {

constexpr std::size_t longest_file = std::size_t{1} << 20;

error unusable(const std::string& path, const std::string& why) {
    return {.code = status::invalid_argument, .native = 0, .message = path + ": " + why};
}

class open_file {
  public:
    explicit open_file(const std::string& path) noexcept : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    open_file(const open_file&) = delete;
    open_file& operator=(const open_file&) = delete;
    ~open_file() {
        if (fd_ >= 0) close(fd_);
    }
    [[nodiscard]] int fd() const noexcept { return fd_; }

  private:
    int fd_;
};

/// What other users may not do to a file.
enum class closed_to : std::uint8_t { change, read_and_change };

/// Empty: good.
std::string wrong_with(const struct stat& about, closed_to others) {
    if (!S_ISREG(about.st_mode)) return "is not a file";
    if (about.st_uid != geteuid() && about.st_uid != 0) return "belongs to another user, who could change it";
    if (others == closed_to::read_and_change && (about.st_mode & (S_IRWXO | S_IWGRP)) != 0)
        return "other users can read or change these secrets: run chmod 600 on the file";
    if ((about.st_mode & (S_IWOTH | S_IWGRP)) != 0) return "other users can change it: run chmod go-w on the file";
    return {};
}

ssize_t read_some(int fd, char* to, std::size_t most) noexcept {
    for (;;) {
        const ssize_t got = read(fd, to, most);
        if (got >= 0 || errno != EINTR) return got;
    }
}

result<std::string> read_whole(const std::string& path, int fd) {
    std::string text(longest_file + 1, '\0');
    std::size_t have = 0;
    for (;;) {
        const ssize_t got = read_some(fd, text.data() + have, text.size() - have);
        if (got < 0) return unusable(path, "cannot be read: " + std::generic_category().message(errno));
        have += static_cast<std::size_t>(got);
        if (have > longest_file) return unusable(path, "is longer than 1 MiB");
        if (got == 0) break;
    }
    text.resize(have);
    text.shrink_to_fit();
    return text;
}

result<std::string> read_checked(const std::string& path, closed_to others) {
    const open_file file{path};
    struct stat about {};
    if (file.fd() < 0 || fstat(file.fd(), &about) != 0)
        return unusable(path, "cannot be read: " + std::generic_category().message(errno));
    if (const std::string wrong = wrong_with(about, others); !wrong.empty()) return unusable(path, wrong);
    return read_whole(path, file.fd());
}

}  // namespace

result<std::string> read_private_file(const std::string& path) {
    return read_checked(path, closed_to::read_and_change);
}

result<std::string> read_trusted_file(const std::string& path) {
    return read_checked(path, closed_to::change);
}

}  // namespace accel::examples::serving::access
