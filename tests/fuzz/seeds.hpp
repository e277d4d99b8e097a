// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

/// Seeds of the fuzz targets: one function a target, which writes them into its folder.
namespace accel::tests {

using bytes = std::vector<std::uint8_t>;

class seed_folder {
  public:
    seed_folder(const std::filesystem::path& top, const std::string& subject) : path_(top / subject) {
        std::filesystem::create_directories(path_);
    }
    void add(const std::string& name, const bytes& content) const {
        std::ofstream(path_ / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    }
    void add(const std::string& name, const std::string& text) const { add(name, bytes(text.begin(), text.end())); }

  private:
    std::filesystem::path path_;
};

template <class Layout>
void append(bytes& to, const Layout& value) {
    const std::size_t at = to.size();
    to.resize(at + sizeof value);
    std::memcpy(to.data() + at, &value, sizeof value);
}

inline void append_all(bytes& to, const bytes& more) {
    to.insert(to.end(), more.begin(), more.end());
}

/// Steps, one behind the other.
inline bytes joined(std::initializer_list<bytes> steps) {
    bytes all;
    for (const bytes& step : steps) append_all(all, step);
    return all;
}

// What one parser reads.

void uri_seeds(const seed_folder& to);
void header_seeds(const seed_folder& to);
void stream_seeds(const seed_folder& to);
void control_seeds(const seed_folder& to);
void zmq_seeds(const seed_folder& to);
void zmq_description_seeds(const seed_folder& to);
void key_seeds(const seed_folder& to);
void verbs_seeds(const seed_folder& to);
void tensor_seeds(const seed_folder& to);
void oip_seeds(const seed_folder& to);
void oip_message_seeds(const seed_folder& to);
void oip_answer_seeds(const seed_folder& to);
void configuration_seeds(const seed_folder& to);
void token_file_seeds(const seed_folder& to);
void coding_seeds(const seed_folder& to);
void http_door_seeds(const seed_folder& to);
void grpc_door_seeds(const seed_folder& to);

// Sequences of steps.

void arrival_seeds(const seed_folder& to);
void shm_seeds(const seed_folder& to);
void channel_seeds(const seed_folder& to);
void channel_parts_seeds(const seed_folder& to);
void worker_seeds(const seed_folder& to);
void service_seeds(const seed_folder& to);
void exclusive_seeds(const seed_folder& to);
void client_seeds(const seed_folder& to);
void owner_seeds(const seed_folder& to);
void control_server_seeds(const seed_folder& to);
void control_client_seeds(const seed_folder& to);
void first_bytes_seeds(const seed_folder& to);
void tls_records_seeds(const seed_folder& to);

}  // namespace accel::tests
