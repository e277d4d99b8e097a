// SPDX-License-Identifier: Apache-2.0
#include "digits/service_choice.hpp"

#include "digits/digits_service.hpp"
#include "digits/gpu_service.hpp"

#include <charconv>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace accel::examples::digits {
namespace {

constexpr std::string_view on_gpu = "cuda:";

/// Whether the first GPU will do.
result<void> try_gpu(context& ctx, memory_kind memory) {
    const auto some = ctx.allocate(256, memory);
    if (!some) return some.error();
    const auto service = gpu_service::load(memory);
    if (!service) return service.error();
    return {};
}

template <class Service>
result<handler> handler_of(result<Service> loaded) {
    if (!loaded) return loaded.error();
    return handler{[service = std::move(*loaded)](exchange request) mutable { service.serve(std::move(request)); }};
}

}  // namespace

std::optional<memory_kind> parse_memory(std::string_view text) {
    if (text == "host") return memory_kind::host();
    if (!text.starts_with(on_gpu)) return std::nullopt;
    text.remove_prefix(on_gpu.size());
    std::int16_t ordinal = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
    if (failed != std::errc{} || end != text.data() + text.size() || ordinal < 0) return std::nullopt;
    return memory_kind::cuda(ordinal);
}

std::string to_text(memory_kind memory) {
    return memory == memory_kind::host() ? "host" : fmt::format("{}{}", on_gpu, memory.ordinal);
}

std::string check_memory_option(const std::string& text) {
    if (text == "auto" || parse_memory(text)) return {};
    return fmt::format("'{}' is not host, cuda:0 (or another number) or auto", text);
}

result<service_place> choose_place(context& ctx, std::string_view option) {
    const auto named = parse_memory(option);
    if (named == memory_kind::host()) return service_place{*named, "as asked for"};
    const auto memory = named.value_or(memory_kind::cuda(0));
    const auto usable = try_gpu(ctx, memory);
    if (named && !usable) return usable.error();
    if (named) return service_place{memory, "as asked for"};
    if (!usable) return service_place{memory_kind::host(), usable.error().message};
    return service_place{memory, "this machine has a GPU"};
}

result<handler> make_service(memory_kind memory, const server_options& options) {
    if (memory == memory_kind::host()) return handler_of(digits_service::load());
    return handler_of(gpu_service::load(memory, options));
}

}  // namespace accel::examples::digits
