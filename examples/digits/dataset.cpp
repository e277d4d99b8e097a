// SPDX-License-Identifier: Apache-2.0
#include "digits/dataset.hpp"

#include "digits/checked_file.hpp"

#include <cstdint>
#include <string_view>

namespace accel::examples::digits {
namespace {

constexpr std::string_view images_magic = "ADIMAGES";
constexpr std::uint32_t images_version = 1;
constexpr std::size_t header_bytes = magic_bytes + 5 * sizeof(std::uint32_t);
constexpr std::size_t record_bytes = tensor_values + 1;
constexpr std::uint32_t max_images = 1'000'000;

failure check_record(const digit_image& image) {
    for (const std::byte pixel : image.pixels)
        if (std::to_integer<int>(pixel) > brightest_pixel) return failure::pixel_out_of_range;
    if (image.label >= static_cast<int>(class_count)) return failure::label_out_of_range;
    return failure::none;
}

}  // namespace

loaded<dataset> dataset::load(std::span<const std::byte> file) noexcept {
    if (const failure why = check_envelope(file, images_magic, images_version); why != failure::none) return {{}, why};
    if (file.size() < header_bytes + checksum_bytes) return {{}, failure::file_truncated};

    byte_reader reader(file.subspan(magic_bytes + sizeof(images_version)));
    const std::uint32_t count = reader.take_u32();
    const std::uint32_t height = reader.take_u32();
    const std::uint32_t width = reader.take_u32();
    const std::uint32_t brightest = reader.take_u32();
    if (count == 0 || count > max_images || height != image_side || width != image_side || brightest != brightest_pixel)
        return {{}, failure::shape_unexpected};
    const std::size_t records = count * record_bytes;
    if (const failure why = check_length(reader.remaining(), records + checksum_bytes); why != failure::none)
        return {{}, why};
    const dataset images(reader.take(records));
    for (std::size_t i = 0; i < images.size(); ++i)
        if (const failure why = check_record(images[i]); why != failure::none) return {{}, why};
    return {images, failure::none};
}

std::size_t dataset::size() const noexcept {
    return records_.size() / record_bytes;
}

digit_image dataset::operator[](std::size_t index) const noexcept {
    const auto record = records_.subspan(index * record_bytes, record_bytes);
    return {record.first<tensor_values>(), std::to_integer<int>(record.back())};
}

void to_tensor(const digit_image& image, std::span<float, tensor_values> tensor) noexcept {
    for (std::size_t i = 0; i < tensor_values; ++i)
        tensor[i] = static_cast<float>(std::to_integer<int>(image.pixels[i])) / static_cast<float>(brightest_pixel);
}

}  // namespace accel::examples::digits
