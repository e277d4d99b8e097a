// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/access/file_watch.hpp"
#include "serving/doors/access/private_file.hpp"
#include "serving/doors/access/tokens.hpp"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::access {
namespace {

/// A file that goes with the test.
class secret_file {
  public:
    explicit secret_file(const std::string& text) {
        path_ = (std::filesystem::temp_directory_path() / "accel_secret.XXXXXX").string();
        close(mkstemp(path_.data()));
        std::ofstream(path_, std::ios::binary) << text;
        chmod(path_.c_str(), 0600);
    }
    secret_file(const secret_file&) = delete;
    secret_file& operator=(const secret_file&) = delete;
    ~secret_file() { unlink(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

TEST(access_tokens, only_listed_tokens_are_allowed) {
    const std::string longest(token_list::longest, 'a');
    const auto list = token_list::parse("# of the team\n\n  first-token \t\r\nsecond=token\n" + longest).value();
    for (const std::string& good : {std::string{"Bearer first-token"}, std::string{"bearer  second=token "},
                                    std::string{"BEARER \tfirst-token"}, "Bearer " + longest})
        EXPECT_TRUE(list.allow(good)) << good;
    for (const std::string& wrong :
         {std::string{}, std::string{"Bearer"}, std::string{"Bearer "}, std::string{"first-token"},
          std::string{"Basic first-token"}, std::string{"Bearer first-tokens"}, std::string{"Bearer first-toke"},
          std::string{"Bearer irst-token"}, std::string{"Bearer first-token second=token"},
          std::string{"Bearer # of the team"}, std::string{"Bearer first-token\0", 19}, "Bearer " + longest + 'a'})
        EXPECT_FALSE(list.allow(wrong)) << wrong;
    for (std::size_t at = 0; at < longest.size(); ++at) {
        std::string other = longest;
        other[at] = 'b';
        EXPECT_FALSE(list.allow("Bearer " + other)) << at;
    }
    EXPECT_TRUE(token_list{}.allow("")) << "everybody is allowed without a list";
}

TEST(access_tokens, an_invalid_file_of_tokens_is_refused_with_its_line) {
    constexpr const char* none = ": the file has no tokens: write one per line";
    constexpr const char* invalid = " is not a valid token: expected up to 256 visible ASCII characters";
    for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
             {"", none},
             {"# nothing\n\n \t\r\n", none},
             {std::string(token_list::longest, '!'), ""},
             {"~\n", ""},
             {"good\n#\ntwo words\n", std::string{": line 3"} + invalid},
             {std::string(token_list::longest + 1, 'a'), std::string{": line 1"} + invalid},
             {"\x7f", std::string{": line 1"} + invalid},
             {"a\n\xc3\xa4", std::string{": line 2"} + invalid},
             {std::string{"a\0", 2}, std::string{": line 1"} + invalid}}) {
        const secret_file file{text};
        const auto read = token_list::read(file.path());
        EXPECT_EQ(read ? "" : read.error().message, said.empty() ? "" : file.path() + said) << text;
    }
}

TEST(access_private_file, a_file_that_others_can_change_or_a_secret_that_they_can_read_is_refused) {
    const secret_file file{"text"};
    const auto said = [&](const result<std::string>& read) {
        return read ? read.value() : read.error().message.substr(file.path().size());
    };
    constexpr const char* open = ": other users can read or change these secrets: run chmod 600 on the file";
    constexpr const char* changed = ": other users can change it: run chmod go-w on the file";
    for (const auto& [mode, secret, trusted] :
         std::initializer_list<std::tuple<mode_t, const char*, const char*>>{{0600U, "text", "text"},
                                                                             {0400U, "text", "text"},
                                                                             {0640U, "text", "text"},
                                                                             {0610U, "text", "text"},
                                                                             {0604U, open, "text"},
                                                                             {0601U, open, "text"},
                                                                             {0602U, open, changed},
                                                                             {0620U, open, changed}}) {
        chmod(file.path().c_str(), mode);
        EXPECT_EQ(said(read_private_file(file.path())), secret) << std::oct << mode;
        EXPECT_EQ(said(read_trusted_file(file.path())), trusted) << std::oct << mode;
    }
    if (geteuid() != 0) return;  // only root gives a file away
    chmod(file.path().c_str(), 0600);
    ASSERT_EQ(chown(file.path().c_str(), 1, 1), 0);
    EXPECT_EQ(said(read_private_file(file.path())), ": belongs to another user, who could change it");
}

TEST(access_private_file, folders_and_endless_files_are_refused) {
    const secret_file longest{std::string(std::size_t{1} << 20, 'a')};
    EXPECT_EQ(read_private_file(longest.path()).value().size(), std::size_t{1} << 20);
    const secret_file longer{std::string((std::size_t{1} << 20) + 1, 'a')};
    for (const auto& [path, said] : std::initializer_list<std::pair<std::string, const char*>>{
             {longer.path(), ": is longer than 1 MiB"},
             {"/tmp", ": is not a file"},
             {"/dev/zero", ": is not a file"},
             {"/nothing/here", ": cannot be read: No such file or directory"}})
        EXPECT_EQ(read_private_file(path).error().message, path + said);
}

TEST(access_files, a_change_is_noticed_when_the_files_have_rested) {
    const secret_file first("one");
    const secret_file second("two");
    file_watch watch({first.path(), second.path()});
    EXPECT_FALSE(watch.changed());
    std::string text;
    for (int i = 0; i < 3; ++i) {
        std::ofstream(second.path()) << (text += "longer each time");
        EXPECT_FALSE(watch.changed()) << "it may be half written";
    }
    EXPECT_TRUE(watch.changed());
    EXPECT_TRUE(watch.changed()) << "until it is read";
    watch.note_reading();
    EXPECT_FALSE(watch.changed());
    std::filesystem::remove(first.path());
    EXPECT_FALSE(watch.changed());
    EXPECT_TRUE(watch.changed()) << "a file is missing";
}

}  // namespace
}  // namespace accel::examples::serving::access
