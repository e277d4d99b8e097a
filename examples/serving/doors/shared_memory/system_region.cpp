// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/system_region.hpp"

#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/shared_memory/guarded_mapping.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::shared_memory {
namespace {

constexpr std::size_t max_key_bytes = 255;

error bad_object(std::string_view key, const std::string& what) {
    return oip::refusal(status::invalid_argument, "shared memory " + oip::in_quotes(key) + ' ' + what);
}

error shortened() {
    return oip::refusal(status::invalid_argument,
                        "the shared memory is shorter than when it was registered: register it again");
}

class file {
  public:
    explicit file(int number) noexcept : number_(number) {}
    file(file&& from) noexcept : number_(std::exchange(from.number_, -1)) {}
    file& operator=(file&&) = delete;
    ~file() {
        if (number_ >= 0) close(number_);
    }
    [[nodiscard]] int number() const noexcept { return number_; }
    /// Its length; 0: it cannot be told.
    [[nodiscard]] std::uint64_t length() const noexcept {
        struct stat seen {};
        return fstat(number_, &seen) == 0 ? static_cast<std::uint64_t>(seen.st_size) : 0;
    }

  private:
    int number_;
};

/// Whoever may write there by himself: its owner is this program's user, or all may.
bool is_open_to_us(const struct stat& seen) noexcept {
    constexpr mode_t all = S_IROTH | S_IWOTH;
    return seen.st_uid == geteuid() || (seen.st_mode & all) == all;
}

result<file> open_object(std::string_view key, std::uint64_t end) {
    if (!is_shared_name(key)) return bad_object(key, "is not a valid name: use only letters, digits, '.', '_' and '-'");
    std::string name{key};
    if (name.front() != '/') name.insert(name.begin(), '/');
    file out{shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0)};
    if (out.number() < 0) return bad_object(key, "cannot be opened: " + std::string{std::strerror(errno)});
    struct stat seen {};
    if (fstat(out.number(), &seen) != 0 || !S_ISREG(seen.st_mode))
        return bad_object(key,
                          "is not a shared memory "
                          "object");
    if (!is_open_to_us(seen)) return bad_object(key, "belongs to another user, and is not open to everyone");
    if (static_cast<std::uint64_t>(seen.st_size) < end)
        return bad_object(
            key, "has " + std::to_string(seen.st_size) + " bytes, but the region ends at " + std::to_string(end));
    return out;
}

class system_region final : public region {
  public:
    system_region(file from, std::uint64_t begin, std::unique_ptr<claim> share)
        : file_(std::move(from)), begin_(begin), share_(std::move(share)) {}

    [[nodiscard]] result<void> open_mapping(std::uint64_t bytes, context& lent_by) {
        auto mapped = guarded_mapping::map(file_.number(), begin_, bytes);
        if (!mapped) return mapped.error();
        mapping_ = std::move(mapped).value();
        auto registered = lent_by.register_memory(mapping_->bytes().data(), mapping_->bytes().size());
        if (!registered) return registered.error();
        registered_ = std::move(registered).value();
        return {};
    }

    result<void> read(std::uint64_t offset, std::span<std::byte> to) override {
        while (!to.empty()) {
            const ssize_t got = pread(file_.number(), to.data(), to.size(), static_cast<off_t>(begin_ + offset));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return shortened();
            offset += static_cast<std::uint64_t>(got);
            to = to.subspan(static_cast<std::size_t>(got));
        }
        return {};
    }

    /// A write behind the end would make the file grow. One that is shortened in between does, by this one answer.
    result<void> write(std::uint64_t offset, std::span<const std::byte> from) override {
        if (file_.length() < begin_ + offset + from.size()) return shortened();
        while (!from.empty()) {
            const ssize_t put = pwrite(file_.number(), from.data(), from.size(), static_cast<off_t>(begin_ + offset));
            if (put < 0 && errno == EINTR) continue;
            if (put <= 0)
                return oip::refusal(status::invalid_argument,
                                    "the shared memory cannot be written: " + std::string{std::strerror(errno)});
            offset += static_cast<std::uint64_t>(put);
            from = from.subspan(static_cast<std::size_t>(put));
        }
        return {};
    }

    slice lend(std::uint64_t offset, std::uint64_t bytes) override {
        if (mapping_ == nullptr || mapping_->lost()) return {};
        const auto part = registered_.part(offset, bytes);
        return part ? part.value() : slice{};
    }

    [[nodiscard]] bool lost() const noexcept override { return mapping_ != nullptr && mapping_->lost(); }
    [[nodiscard]] bool on_gpu() const noexcept override { return false; }

  private:
    file file_;
    std::uint64_t begin_;
    std::unique_ptr<claim> share_;
    std::unique_ptr<guarded_mapping> mapping_;  ///< null: it is not lent
    accel::region registered_;                  ///< of the mapping
};

}  // namespace

bool is_shared_name(std::string_view key) noexcept {
    if (!key.empty() && key.front() == '/') key.remove_prefix(1);
    const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    };
    return !key.empty() && key.size() < max_key_bytes && key.front() != '.' && std::ranges::all_of(key, good);
}

result<std::shared_ptr<region>> open_system_region(std::string_view key, std::uint64_t offset, std::uint64_t bytes,
                                                   std::unique_ptr<claim> share, context* lent_by) {
    auto opened = open_object(key, offset + bytes);
    if (!opened) return opened.error();
    auto out = std::make_shared<system_region>(std::move(opened).value(), offset, std::move(share));
    if (lent_by != nullptr)
        if (auto mapped = out->open_mapping(bytes, *lent_by); !mapped) return mapped.error();
    return std::shared_ptr<region>{std::move(out)};
}

}  // namespace accel::examples::serving::shared_memory
