// SPDX-License-Identifier: Apache-2.0
#include "core/tls/credentials.hpp"
#include "unit/control_fixture.hpp"

#include <openssl/x509v3.h>
#include <sys/stat.h>

namespace accel::core::testing {
namespace {

class control_keys_test : public ::testing::Test {
  protected:
    void write(const std::string& name, const std::string& text, mode_t mode = 0600) {
        std::ofstream{folder.file(name)} << text;
        ASSERT_EQ(::chmod(folder.file(name).c_str(), mode), 0);
    }
    [[nodiscard]] unsigned mode(const std::string& name) const {
        struct stat info {};
        EXPECT_EQ(::stat(folder.file(name).c_str(), &info), 0);
        return info.st_mode & 07777U;
    }
    [[nodiscard]] std::string text(const std::string& name) const {
        std::ifstream file{folder.file(name)};
        return {std::istreambuf_iterator<char>{file}, {}};
    }
    /// Empty: it was read.
    template <class Read>
    [[nodiscard]] static error as_error(const result<Read>& read) {
        return read.ok() ? error{} : read.error();
    }
    [[nodiscard]] std::string private_half(const std::string& name) const {
        auto key = read_private_key(folder.file(name));
        EXPECT_TRUE(key.ok()) << key.error().message;
        return key.ok() ? public_half(key->get())->text() : "";
    }
    key_folder folder;
};

std::string name_in_certificate(const std::string& name) {
    const x509_ptr made(X509_new());
    X509V3_CTX context{};
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, ("DNS:" + name).c_str());
    X509_add_ext(made.get(), names, -1);
    X509_EXTENSION_free(names);
    return name_of(made.get());
}

TEST(certificate_names, names_in_certificates_have_at_most_253_characters) {
    EXPECT_EQ(name_in_certificate(std::string(253, 'a')), std::string(253, 'a'));
    EXPECT_EQ(name_in_certificate(std::string(254, 'a')), "");
}

TEST_F(control_keys_test, a_pair_is_written_and_read) {
    EXPECT_EQ(mode("client.key"), 0600U);
    EXPECT_EQ(mode("client.pub"), 0644U);
    EXPECT_EQ(private_half("client.key"), folder.key("client"));
    auto read = read_server_key(folder.file("client.pub"));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->text(), folder.key("client"));
    EXPECT_EQ(read_server_key(folder.key("client"))->text(), folder.key("client"));
}

TEST_F(control_keys_test, the_text_of_a_key_is_taken_in_one_form_only) {
    const std::string key = folder.key("client");
    ASSERT_TRUE(parse_public_key(key));
    EXPECT_FALSE(parse_public_key(key.substr(1)));
    EXPECT_FALSE(parse_public_key(key + "A"));
    EXPECT_FALSE(parse_public_key(key.substr(0, key.size() - 1)));
    std::string odd = key;
    odd[20] = '+';
    EXPECT_FALSE(parse_public_key(odd));
    // The last character has two bits that no key uses.
    odd = key;
    odd.back() = odd.back() == 'B' ? 'C' : 'B';
    EXPECT_FALSE(parse_public_key(odd));
}

TEST_F(control_keys_test, key_files_are_overwritten_only_with_force) {
    auto key = make_private_key();
    ASSERT_TRUE(key.ok());
    const auto refused = write_key_files(folder.file("client"), key->get(), false);
    ASSERT_EQ(refused.code(), status::invalid_state);
    EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
    EXPECT_EQ(private_half("client.key"), folder.key("client"));
    EXPECT_TRUE(write_key_files(folder.file("client"), key->get(), true).ok());
    EXPECT_EQ(private_half("client.key"), public_half(key->get())->text());
    EXPECT_EQ(mode("client.key"), 0600U);
}

TEST_F(control_keys_test, a_full_disk_leaves_no_empty_key_file) {
    // A file that cannot be written as a whole: its folder is not there.
    auto key = make_private_key();
    EXPECT_FALSE(write_key_files(folder.file("missing/pair"), key->get(), false).ok());
    // What an interrupted try has left is no hindrance.
    write("pair.key.new", "");
    EXPECT_TRUE(write_key_files(folder.file("pair"), key->get(), false).ok());
    EXPECT_FALSE(std::filesystem::exists(folder.file("pair.key.new")));
}

/// Whose file it is, who may do what with it, and what is said of it.
TEST_F(control_keys_test, keys_are_read_only_from_files_that_nobody_else_can_read_or_change) {
    struct file_of {
        const char* name;
        mode_t mode;
        uid_t owner;
        gid_t group;
        const char* said;  ///< empty: it is taken
    };
    const uid_t self = ::geteuid();
    const gid_t own = ::getegid();
    constexpr uid_t other = 12'345;
    const std::vector<file_of> files{
        {"client.key", 0600, self, own, ""},
        {"client.key", 0400, self, own, ""},
        {"client.key", 0640, self, own, "chmod 600"},
        {"client.key", 0604, self, own, "chmod 600"},
        {"client.key", 0620, self, own, "chmod 600"},
        {"client.key", 0600, other, other, "another user"},
        {"client.key", 0440, 0, other, ""},  // a secret that is mounted for a group
        {"client.key", 0640, 0, other, "chmod"},
        {"client.key", 0444, 0, other, "chmod"},
        {"client.key", 0460, 0, other, "chmod"},
        {"authorized", 0644, self, own, ""},
        {"authorized", 0664, self, own, "chmod go-w"},
        {"authorized", 0646, self, own, "chmod go-w"},
    };
    for (const file_of& each : files) {
        SCOPED_TRACE(::testing::Message() << each.name << ' ' << std::oct << each.mode << " of " << each.owner);
        if (self != 0 && (each.owner != self || each.group != own)) continue;  // only root can give a file away
        const std::string path = folder.file(each.name);
        ASSERT_EQ(::chown(path.c_str(), each.owner, each.group), 0);
        ASSERT_EQ(::chmod(path.c_str(), each.mode), 0);
        const auto read = std::string(each.name) == "authorized" ? as_error(read_authorized_keys(path))
                                                                 : as_error(read_private_key(path));
        EXPECT_EQ(read.code, each.said[0] == '\0' ? status::ok : status::unauthorized) << read.message;
        EXPECT_NE(read.message.find(each.said), std::string::npos) << read.message;
    }
}

TEST_F(control_keys_test, a_file_that_others_may_replace_is_refused) {
    const std::filesystem::path shared = folder.file("shared");
    std::filesystem::create_directory(shared);
    std::filesystem::copy_file(folder.file("client.key"), shared / "client.key");
    ASSERT_EQ(::chmod((shared / "client.key").c_str(), 0600), 0);
    ASSERT_EQ(::chmod(shared.c_str(), 0777), 0);
    const auto refused = read_private_key(shared / "client.key");
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("chmod go-w"), std::string::npos) << refused.error().message;
    ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
    EXPECT_TRUE(read_private_key(shared / "client.key").ok()) << "as in /tmp";
    ASSERT_EQ(::chmod(shared.c_str(), 0755), 0);
    EXPECT_TRUE(read_private_key(shared / "client.key").ok());
    if (::geteuid() != 0) return;
    ASSERT_EQ(::chmod(shared.c_str(), 0775), 0);
    EXPECT_TRUE(read_private_key(shared / "client.key").ok()) << "a user's private group";
    ASSERT_EQ(::chown(shared.c_str(), 0, 12345), 0);
    EXPECT_FALSE(read_private_key(shared / "client.key").ok());
}

/// Nobody ever writes into it.
TEST_F(control_keys_test, a_pipe_does_not_block_the_reader) {
    const std::string pipe = folder.file("pipe.key");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(read_private_key(pipe).code(), status::unauthorized);
    EXPECT_EQ(read_authorized_keys(pipe).code(), status::unauthorized);
    EXPECT_FALSE(public_key_of_file(pipe).ok());
}

TEST_F(control_keys_test, files_are_found_again_from_another_folder) {
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(std::filesystem::path(folder.file("x")).parent_path());
    auto loaded = live_security::of_server({.key_file = "server.key", .authorized_keys = "authorized"});
    std::filesystem::current_path(before);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_TRUE((*loaded)->reload().ok());
}

TEST_F(control_keys_test, invalid_key_files_are_refused_with_their_reason) {
    const auto missing = read_private_key(folder.file("missing.key"));
    EXPECT_EQ(missing.code(), status::unauthorized);
    EXPECT_NE(missing.error().message.find("make a key pair"), std::string::npos) << missing.error().message;
    const auto unreachable = read_private_key(folder.file("client.pub/client.key"));
    ASSERT_EQ(unreachable.code(), status::unauthorized);
    EXPECT_EQ(unreachable.error().message.find("make a key pair"), std::string::npos) << unreachable.error().message;
    ASSERT_EQ(::chmod(folder.file("client.pub").c_str(), 0600), 0);
    EXPECT_EQ(read_private_key(folder.file("client.pub")).code(), status::unauthorized);
    EXPECT_FALSE(read_private_key("/dev/zero").ok());
    EXPECT_EQ(read_server_key("neither key nor file").code(), status::unauthorized);
    EXPECT_EQ(read_server_key("ed25519:short").code(), status::unauthorized);
    const auto private_one = read_server_key(folder.file("server.key"));
    ASSERT_EQ(private_one.code(), status::unauthorized);
    EXPECT_NE(private_one.error().message.find("private key"), std::string::npos) << private_one.error().message;
    EXPECT_EQ(read_authorized_keys(folder.file("server.key")).code(), status::unauthorized);
}

TEST_F(control_keys_test, authorized_keys_take_names_comments_and_appended_files_and_name_a_bad_line) {
    write("many", "# comment\n\n  " + folder.key("client") + "  alice\r\n" + text("stranger.pub"), 0644);
    auto keys = read_authorized_keys(folder.file("many"));
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    ASSERT_EQ(keys->size(), 2U);
    EXPECT_EQ(keys->at(0).text(), folder.key("client"));
    EXPECT_EQ(keys->at(1).text(), folder.key("stranger"));
    write("bad", folder.key("client") + "\nnot a key\n", 0644);
    const auto refused = read_authorized_keys(folder.file("bad"));
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("line 2"), std::string::npos);
    EXPECT_EQ(read_authorized_keys(folder.file("missing")).code(), status::unauthorized);
}

TEST_F(control_keys_test, a_server_without_authorized_keys_does_not_start) {
    folder.authorize({});
    const auto refused = live_security::of_server(folder.server());
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("no client could connect"), std::string::npos);
}

TEST_F(control_keys_test, the_public_key_is_read_from_many_kinds_of_files) {
    const auto key_in = [this](const std::string& name) {
        auto key = public_key_of_file(folder.file(name));
        return key.ok() ? key->text() : key.error().message;
    };
    EXPECT_EQ(key_in("client.key"), folder.key("client"));
    EXPECT_EQ(key_in("client.pub"), folder.key("client"));
    // Made by ssh-keygen; the 32 bytes of the key are those of its text here.
    write("ssh.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@here\n");
    EXPECT_EQ(key_in("ssh.pub"), "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
    write("none", "nothing\n");
    EXPECT_NE(key_in("none").find("does not contain an Ed25519 key"), std::string::npos);
}

}  // namespace
}  // namespace accel::core::testing
