#include "unit/control_fixture.hpp"

#include <sys/stat.h>

namespace accel::core::testing {
namespace {

class control_keys_test : public ::testing::Test {
  protected:
    void write(const std::string& name, const std::string& text) { std::ofstream{folder.file(name)} << text; }
    [[nodiscard]] unsigned mode(const std::string& name) const {
        struct stat info {};
        EXPECT_EQ(::stat(folder.file(name).c_str(), &info), 0);
        return info.st_mode & 07777U;
    }
    key_folder folder;
};

TEST_F(control_keys_test, a_pair_is_written_and_read) {
    EXPECT_EQ(mode("client.key"), 0600U);
    EXPECT_EQ(mode("client.pub"), 0644U);
    auto read = read_key_file(folder.file("client.key"));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->secret_key, folder.pair("client").secret_key);
    EXPECT_EQ(read->public_key, folder.pair("client").public_key);
    auto read_public = read_public_key(folder.file("client.pub"));
    ASSERT_TRUE(read_public.ok());
    EXPECT_EQ(*read_public, folder.pair("client").public_key);
    EXPECT_TRUE(read_public_key(folder.pair("client").public_key).ok());
}

TEST_F(control_keys_test, nothing_is_overwritten_unless_asked_for) {
    auto keys = make_key_pair();
    ASSERT_TRUE(keys.ok());
    const auto refused = write_key_files(folder.file("client"), *keys, false);
    ASSERT_EQ(refused.code(), status::invalid_state);
    EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
    EXPECT_EQ(read_key_file(folder.file("client.key"))->secret_key, folder.pair("client").secret_key);
    EXPECT_TRUE(write_key_files(folder.file("client"), *keys, true).ok());
    EXPECT_EQ(read_key_file(folder.file("client.key"))->secret_key, keys->secret_key);
    EXPECT_EQ(mode("client.key"), 0600U);
}

TEST_F(control_keys_test, a_key_file_that_others_can_read_is_refused) {
    ASSERT_EQ(::chmod(folder.file("client.key").c_str(), 0640), 0);
    const auto refused = read_key_file(folder.file("client.key"));
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("chmod 600"), std::string::npos);
}

TEST_F(control_keys_test, key_files_that_are_none_are_refused) {
    EXPECT_EQ(read_key_file(folder.file("missing.key")).code(), status::unauthorized);
    write("mixed", "public-key = \"" + folder.pair("server").public_key + "\"\nsecret-key = \"" +
                       folder.pair("client").secret_key + "\"\n");
    ASSERT_EQ(::chmod(folder.file("mixed").c_str(), 0600), 0);
    EXPECT_EQ(read_key_file(folder.file("mixed")).code(), status::unauthorized);
    ASSERT_EQ(::chmod(folder.file("client.pub").c_str(), 0600), 0);
    EXPECT_EQ(read_key_file(folder.file("client.pub")).code(), status::unauthorized);
    EXPECT_EQ(read_public_key("neither key nor file").code(), status::unauthorized);
    EXPECT_EQ(read_public_key(std::string(40, ' ')).code(), status::unauthorized);
}

TEST_F(control_keys_test, authorized_keys_take_bare_keys_and_appended_files) {
    std::ifstream pub{folder.file("stranger.pub")};
    const std::string stranger{std::istreambuf_iterator<char>{pub}, {}};
    write("many", "# comment\n\n  " + folder.pair("client").public_key + "  alice\r\n" + stranger);
    auto keys = read_authorized_keys(folder.file("many"));
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    EXPECT_EQ(*keys, (std::vector{folder.pair("client").public_key, folder.pair("stranger").public_key}));
}

TEST_F(control_keys_test, authorized_keys_with_a_bad_line_or_no_key_are_refused) {
    write("bad", folder.pair("client").public_key + "\nnot a key\n");
    const auto refused = read_authorized_keys(folder.file("bad"));
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("line 2"), std::string::npos);
    write("empty", "# nobody\n");
    EXPECT_EQ(read_authorized_keys(folder.file("empty")).code(), status::unauthorized);
    EXPECT_EQ(read_authorized_keys(folder.file("missing")).code(), status::unauthorized);
}

TEST_F(control_keys_test, neither_keys_nor_insecure_is_refused_with_advice) {
    const auto context = std::make_shared<context_state>();
    const auto client = load_client_security({});
    ASSERT_EQ(client.code(), status::unauthorized);
    EXPECT_NE(client.error().message.find("accel_keys"), std::string::npos);
    EXPECT_NE(client.error().message.find("insecure"), std::string::npos);
    const auto server = load_server_security(*context, {});
    ASSERT_EQ(server.code(), status::unauthorized);
    EXPECT_NE(server.error().message.find("authorized_keys"), std::string::npos);
    // Half of what is needed is not enough either.
    auto half = folder.server();
    half.authorized_keys.clear();
    EXPECT_EQ(load_server_security(*context, half).code(), status::unauthorized);
    auto other_half = folder.client();
    other_half.server_key.clear();
    EXPECT_EQ(load_client_security(other_half).code(), status::unauthorized);
}

TEST_F(control_keys_test, keys_and_insecure_together_are_refused) {
    const auto context = std::make_shared<context_state>();
    auto both = folder.client();
    both.insecure = true;
    EXPECT_EQ(load_client_security(both).code(), status::invalid_argument);
    auto both_server = folder.server();
    both_server.insecure = true;
    EXPECT_EQ(load_server_security(*context, both_server).code(), status::invalid_argument);
    EXPECT_TRUE((*load_client_security(insecure()))->insecure);
}

}  // namespace
}  // namespace accel::core::testing
