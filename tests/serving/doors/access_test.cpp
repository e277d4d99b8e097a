// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/access/private_file.hpp"
#include "serving/doors/access/tokens.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::access {
namespace {

token_list two_tokens() {
    return token_list::parse("# of the team\n\n  first-token \t\r\nsecond=token").value();
}

std::string refused(std::string_view text) {
    const auto read = token_list::parse(text);
    return read ? "taken" : read.error().message;
}

/// A file that goes with the test.
class secret_file {
  public:
    explicit secret_file(const std::string& text, mode_t mode = 0600) {
        path_ = (std::filesystem::temp_directory_path() / "accel_secret.XXXXXX").string();
        close(mkstemp(path_.data()));
        std::ofstream(path_, std::ios::binary) << text;
        chmod(path_.c_str(), mode);
    }
    secret_file(const secret_file&) = delete;
    secret_file& operator=(const secret_file&) = delete;
    ~secret_file() { unlink(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

TEST(access_tokens, each_token_is_allowed_with_the_scheme_in_any_case) {
    EXPECT_TRUE(two_tokens().allow("Bearer first-token"));
    EXPECT_TRUE(two_tokens().allow("bearer  second=token "));
}

TEST(access_tokens, texts_that_are_not_listed_tokens_are_refused) {
    for (const char* wrong : {"", "Bearer", "Bearer ", "first-token", "Basic first-token", "Bearer first-tokens",
                              "Bearer first-toke", "Bearer first-token second=token", "Bearer # of the team"})
        EXPECT_FALSE(two_tokens().allow(wrong)) << wrong;
    EXPECT_FALSE(two_tokens().allow("Bearer " + std::string(token_list::longest + 1, 'a')));
    EXPECT_FALSE(two_tokens().allow(std::string_view{"Bearer first-token\0", 19}));
}

TEST(access_tokens, tokens_of_any_length_differ_in_each_byte) {
    const std::string longest(token_list::longest, 'a');
    const token_list one = token_list::parse(longest).value();
    EXPECT_TRUE(one.allow("Bearer " + longest));
    for (const std::size_t at : {std::size_t{0}, token_list::longest / 2, token_list::longest - 1}) {
        std::string other = longest;
        other[at] = 'b';
        EXPECT_FALSE(one.allow("Bearer " + other)) << at;
    }
}

TEST(access_tokens, everybody_is_allowed_without_a_list) {
    EXPECT_TRUE(token_list{}.allow(""));
}

TEST(access_tokens, an_invalid_token_is_named_by_its_line) {
    EXPECT_EQ(refused("good\n#\ntwo words\n"),
              "line 3 is not a valid token: expected up to 256 visible ASCII characters");
    EXPECT_EQ(refused(std::string(token_list::longest + 1, 'a')).substr(0, 6), "line 1");
    EXPECT_EQ(refused("\x7f").substr(0, 6), "line 1");
    EXPECT_EQ(refused("# nothing\n\n"), "the file has no tokens: write one per line");
}

TEST(access_private_file, a_file_that_others_can_read_or_change_is_refused) {
    for (const mode_t mode : {0600U, 0400U, 0640U}) {
        const secret_file file{"text", mode};
        EXPECT_EQ(read_private_file(file.path()).value(), "text") << std::oct << mode;
    }
    for (const mode_t mode : {0604U, 0602U, 0601U, 0620U}) {
        const secret_file file{"text", mode};
        EXPECT_EQ(read_private_file(file.path()).error().message,
                  file.path() + ": other users can read or change these secrets: run chmod 600 on the file")
            << std::oct << mode;
    }
}

TEST(access_private_file, a_trusted_file_that_others_can_change_is_refused) {
    const secret_file file{"text"};
    for (const auto& [mode, good] : {std::pair{0644U, true}, {0664U, false}, {0646U, false}}) {
        chmod(file.path().c_str(), mode);
        EXPECT_EQ(read_trusted_file(file.path()).ok(), good) << std::oct << mode;
    }
}

TEST(access_private_file, folders_and_endless_files_are_refused) {
    EXPECT_NE(read_private_file("/tmp").error().message.find("is not a file"), std::string::npos);
    EXPECT_NE(read_private_file("/dev/zero").error().message.find("is not a file"), std::string::npos);
    EXPECT_NE(read_private_file("/nothing/here").error().message.find("cannot be read"), std::string::npos);
    const secret_file large{std::string((std::size_t{1} << 20) + 1, 'a')};
    EXPECT_NE(read_private_file(large.path()).error().message.find("longer than 1 MiB"), std::string::npos);
}

TEST(access_private_file, a_list_of_tokens_names_its_file) {
    const secret_file file{"# nothing\n"};
    EXPECT_EQ(token_list::read(file.path()).error().message,
              file.path() + ": the file has no tokens: write one per line");
    EXPECT_TRUE(token_list::read(secret_file{"a\n"}.path()).value().allow("Bearer a"));
}

}  // namespace
}  // namespace accel::examples::serving::access
