// SPDX-License-Identifier: Apache-2.0
#include "shim/sysfs.hpp"

#include "engine/runner.hpp"
#include "fabric/shared_file.hpp"
#include "model/device.hpp"
#include "shim/installation.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::softnic::sysfs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view class_prefix = "/sys/class/infiniband";
constexpr std::string_view peer_memory_module = "/sys/module/nvidia_peermem";
constexpr std::string_view node_prefix = "/dev/infiniband/uverbs";
constexpr int tree_version = 3;

void put(const fs::path& file, std::string_view text) {
    fs::create_directories(file.parent_path());
    std::ofstream out(file);
    out << text << '\n' << std::flush;
    if (!out) throw fs::filesystem_error("cannot write", file, std::make_error_code(static_cast<std::errc>(errno)));
}

std::string to_text(const gid_bytes& gid) {
    std::string text;
    for (std::size_t at = 0; at < gid.size(); at += 2)
        fmt::format_to(std::back_inserter(text), "{}{:02x}{:02x}", at == 0 ? "" : ":", gid[at], gid[at + 1]);
    return text;
}

std::string to_text(std::uint64_t guid) {
    return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                       guid & 0xffff);
}

void put_port(const fs::path& at, const port& of) {
    const bool ethernet = of.link == link_layer::ethernet;
    put(at / "link_layer", ethernet ? "Ethernet" : "InfiniBand");
    put(at / "state", "4: ACTIVE");
    put(at / "phys_state", "5: LinkUp");
    put(at / "rate", "200 Gb/sec (4X HDR)");
    put(at / "lid", fmt::format("{:#x}", of.lid));
    put(at / "lid_mask_count", "0");
    put(at / "sm_lid", ethernet ? "0x0" : "0x1");
    put(at / "cap_mask", "0x2651e848");
    for (std::size_t index = 0; index < gid_table_length; ++index) {
        const auto name = std::to_string(index);
        const bool used = index < of.gids.size();
        put(at / "gids" / name, to_text(used ? of.gids[index].bytes : gid_bytes{}));
        if (!used) continue;
        put(at / "gid_attrs/types" / name, of.gids[index].type == gid_type::roce_v2 ? "RoCE v2" : "IB/RoCE v1");
        if (ethernet) put(at / "gid_attrs/ndevs" / name, "lo");
    }
    for (std::size_t index = 0; index < (ethernet ? 1 : pkey_table_length); ++index)
        put(at / "pkeys" / std::to_string(index), index == 0 ? "0xffff" : "0x0000");
}

void put_device(const fs::path& root, const device& of) {
    const auto pci = root / fmt::format("devices/pci0000:00/0000:{:02x}:00.0", of.index() + 3);
    const auto ib = pci / "infiniband" / of.name();
    const auto verbs = pci / "infiniband_verbs" / fmt::format("uverbs{}", of.index());
    put(pci / "modalias", "pci:v000015B3d00001021sv000015B3sd00000001bc02sc07i00");
    put(pci / "vendor", "0x15b3");
    put(pci / "device", "0x1021");
    put(pci / "class", "0x020700");
    put(pci / "numa_node", "0");
    put(pci / "local_cpus", "ffffffff");
    put(pci / "max_link_width", "16");
    put(pci / "max_link_speed", "32.0 GT/s PCIe");
    put(pci / "current_link_width", "16");
    put(pci / "current_link_speed", "32.0 GT/s PCIe");
    put(ib / "node_type", "1: CA");
    put(ib / "node_guid", to_text(of.guid()));
    put(ib / "sys_image_guid", to_text(of.guid()));
    put(ib / "fw_ver", "28.39.1002");
    put(ib / "hca_type", "MT4129");
    put(ib / "board_id", "SOFTNIC0000001");
    put(ib / "hw_rev", "0");
    put(ib / "node_desc", "softnic");
    for (const port& each : of.ports()) put_port(ib / "ports" / std::to_string(each.address.port), each);
    put(verbs / "dev", fmt::format("231:{}", 192 + of.index()));
    put(verbs / "ibdev", of.name());
    put(verbs / "abi_version", "1");
    fs::create_directory_symlink(pci, ib / "device");
    fs::create_directory_symlink(pci, verbs / "device");
    fs::create_directory_symlink(ib, root / "class/infiniband" / of.name());
    fs::create_directory_symlink(verbs, root / "class/infiniband_verbs" / verbs.filename());
}

void put_tree(const fs::path& root, const settings& from) {
    put(root / "class/infiniband_verbs/abi_version", "6");
    fs::create_directories(root / "class/infiniband");
    put(root / "module/nvidia_peermem/version", "softnic");
    for (std::size_t index = 0; index < from.devices.size(); ++index)
        put_device(root, device(static_cast<int>(index), from.devices[index]));
    put(root / "complete", "");
}

/// Under a name of its own first, because symbolic links are absolute, then linked: processes may race, one
/// wins.
std::string make_tree(const settings& from) {
    const fs::path shared =
        fmt::format("/dev/shm/softnic-{}-sysfs-{}-{:016x}", ::getuid(), tree_version, from.configuration_hash());
    std::error_code ignored;
    if (fs::exists(shared / "complete", ignored)) return shared;
    char name[] = "/dev/shm/softnic-tree-XXXXXX";
    if (::mkdtemp(name) == nullptr)
        throw fs::filesystem_error("cannot make a folder", name, std::make_error_code(static_cast<std::errc>(errno)));
    try {
        put_tree(name, from);
    } catch (...) {
        fs::remove_all(name, ignored);
        throw;
    }
    fs::create_directory_symlink(name, shared, ignored);
    if (!ignored) return shared;
    if (!fs::exists(shared / "complete")) {  // a link that leads nowhere: somebody tidied /dev/shm
        fs::remove(shared, ignored);
        fs::create_directory_symlink(name, shared, ignored);
        return shared;
    }
    fs::remove_all(name, ignored);
    return shared;
}

const std::string& root() {
    static const std::string& path = *new std::string([] {
        const settings* from = installation::get().configuration();
        if (from == nullptr) return std::string("/nonexistent");
        try {
            return make_tree(*from);
        } catch (const fs::filesystem_error& error) {
            fmt::print(stderr, "softnic: programs find no device: {}\n", shared_memory_trouble(error.code().value()));
            return std::string("/nonexistent");
        }
    }());
    return path;
}

thread_local bool making_tree = false;

bool begins_with(const char* path, std::string_view prefix) {
    return std::strncmp(path, prefix.data(), prefix.size()) == 0;
}

/// Programs take the module for a promise that ibv_reg_mr takes GPU memory. Where it does not, there is none, whatever
/// the machine has.
bool hides(const char* path) {
    const settings* from = installation::get().configuration();
    const bool takes = from == nullptr || (from->peer_memory && from->cuda != cuda_dma::off);
    return !takes && begins_with(path, peer_memory_module);
}

}  // namespace

const char* redirect(const char* path, std::string& buffer) {
    if (path == nullptr || making_tree) return nullptr;
    if (begins_with(path, class_prefix) || begins_with(path, peer_memory_module)) {
        making_tree = true;
        buffer = (hides(path) ? "/nonexistent" : root()) + (path + std::strlen("/sys"));
        making_tree = false;
        return buffer.c_str();
    }
    return device_node(path) >= 0 ? "/dev/null" : nullptr;
}

int device_node(const char* path) {
    if (path == nullptr || !begins_with(path, node_prefix)) return -1;
    const char* number = path + node_prefix.size();
    int index = -1;
    const char* end = number + std::strlen(number);
    const auto [stop, error] = std::from_chars(number, end, index);
    return error == std::errc{} && stop == end ? index : -1;
}

}  // namespace accel::softnic::sysfs
