// SPDX-License-Identifier: Apache-2.0
#include "model/settings.hpp"

#include "fabric/segment.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>

namespace accel::softnic {
namespace {

constexpr std::size_t max_ports = 2;

std::string_view variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view{} : value;
}

link_layer parse_layer(std::string_view word) {
    if (word == "ib") return link_layer::infiniband;
    if (word == "roce") return link_layer::ethernet;
    throw std::invalid_argument(fmt::format("SOFTNIC_DEVICES: \"{}\" is neither ib nor roce", word));
}

template <class Each>
void for_each_part(std::string_view text, char separator, Each each) {
    while (true) {
        const std::size_t end = text.find(separator);
        each(text.substr(0, end));
        if (end == std::string_view::npos) return;
        text.remove_prefix(end + 1);
    }
}

std::uint64_t parse_unsigned(const char* name, std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        throw std::invalid_argument(fmt::format("{}: \"{}\" is not a number", name, text));
    return value;
}

bool parse_switch(const char* name, std::string_view text) {
    if (text == "1" || text == "yes" || text == "on") return true;
    if (text == "0" || text == "no" || text == "off") return false;
    throw std::invalid_argument(fmt::format("{}: \"{}\" is neither 1 nor 0", name, text));
}

void read_unsigned(const char* name, std::uint64_t& value) {
    if (const auto text = variable(name); !text.empty()) value = parse_unsigned(name, text);
}

void read_switch(const char* name, bool& value) {
    if (const auto text = variable(name); !text.empty()) value = parse_switch(name, text);
}

}  // namespace

std::vector<device_plan> parse_devices(std::string_view text) {
    std::vector<device_plan> devices;
    for_each_part(text, ',', [&](std::string_view device) {
        auto& ports = devices.emplace_back();
        for_each_part(device, '+', [&](std::string_view port) { ports.push_back(parse_layer(port)); });
        if (ports.size() > max_ports) throw std::invalid_argument("SOFTNIC_DEVICES: a device has at most two ports");
    });
    if (devices.size() > static_cast<std::size_t>(max_devices))
        throw std::invalid_argument(fmt::format("SOFTNIC_DEVICES: at most {} devices", max_devices));
    return devices;
}

poll_mode parse_poll_mode(std::string_view text) {
    for (const poll_mode mode : {poll_mode::spin, poll_mode::adaptive, poll_mode::deterministic})
        if (to_string(mode) == text) return mode;
    throw std::invalid_argument(fmt::format("SOFTNIC_MODE: \"{}\" is not spin, adaptive or deterministic", text));
}

std::string_view to_string(poll_mode mode) {
    switch (mode) {
        case poll_mode::spin:
            return "spin";
        case poll_mode::adaptive:
            return "adaptive";
        case poll_mode::deterministic:
            return "deterministic";
    }
    return "?";
}

cuda_dma parse_cuda_dma(std::string_view text) {
    if (text == "kernel") return cuda_dma::kernel;
    if (text == "memcpy") return cuda_dma::memcpy;
    if (text == "off") return cuda_dma::off;
    throw std::invalid_argument(fmt::format("SOFTNIC_CUDA_DMA: \"{}\" is not kernel, memcpy or off", text));
}

std::uint64_t settings::configuration_hash() const {
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
    for (const auto& device : devices) {
        mix(0xff);
        for (const link_layer layer : device) mix(static_cast<std::uint64_t>(layer) + 1);
    }
    if (link.on()) {  // times are compared between processes: of one clock
        mix(link.bits_per_second);
        mix(link.delay_ns);
        mix(static_cast<std::uint64_t>(mode == poll_mode::deterministic));
    }
    return hash;
}

settings settings_from_environment() {
    settings from;
    if (const auto text = variable("SOFTNIC_DEVICES"); !text.empty()) from.devices = parse_devices(text);
    if (const auto text = variable("SOFTNIC_FABRIC"); !text.empty()) from.fabric = text;
    if (const auto text = variable("SOFTNIC_MODE"); !text.empty()) from.mode = parse_poll_mode(text);
    if (const auto text = variable("SOFTNIC_LINK"); !text.empty()) from.link = parse_link(text);
    read_switch("SOFTNIC_STRICT", from.strict);
    read_unsigned("SOFTNIC_SEED", from.seed);
    if (const auto text = variable("SOFTNIC_MIN_TIMEOUT_US"); !text.empty())
        from.shortest_timeout_ns = parse_unsigned("SOFTNIC_MIN_TIMEOUT_US", text) * 1000;
    if (const auto text = variable("SOFTNIC_CUDA_DMA"); !text.empty()) from.cuda = parse_cuda_dma(text);
    read_switch("SOFTNIC_PEER_MEMORY", from.peer_memory);
    read_switch("SOFTNIC_DMABUF", from.dmabuf);
    read_unsigned("SOFTNIC_CUDA_IDLE_US", from.cuda_idle_us);
    read_unsigned("SOFTNIC_CUDA_STAY_MS", from.cuda_stay_ms);
    read_unsigned("SOFTNIC_CUDA_TIMEOUT_MS", from.cuda_timeout_ms);
    from.faults = variable("SOFTNIC_FAULTS");
    from.trace = variable("SOFTNIC_TRACE");
    return from;
}

}  // namespace accel::softnic
