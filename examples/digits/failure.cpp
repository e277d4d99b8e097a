// SPDX-License-Identifier: Apache-2.0
#include "digits/failure.hpp"

namespace accel::examples::digits {

std::string_view describe(failure why) noexcept {
    switch (why) {
        case failure::none:
            return "";
        case failure::file_truncated:
            return "The file ends before its header and contents are complete.";
        case failure::file_too_long:
            return "The file goes on after the end of its contents.";
        case failure::magic_unknown:
            return "The file does not begin with the magic of its kind.";
        case failure::version_unknown:
            return "The file has a format version that this build does not know.";
        case failure::checksum_mismatch:
            return "The file's checksum does not match its contents.";
        case failure::shape_unexpected:
            return "A count or shape in the file is not the one that this build expects.";
        case failure::weight_not_finite:
            return "A weight in the file is infinite or not a number.";
        case failure::pixel_out_of_range:
            return "A pixel in the file is brighter than 16.";
        case failure::label_out_of_range:
            return "A label in the file is not a digit from 0 to 9.";
        case failure::tensor_size_wrong:
            return "The tensor does not have exactly 64 values (8 rows of 8).";
        case failure::tensor_value_out_of_range:
            return "A value of the tensor is not between 0 and 1.";
        case failure::frame_size_wrong:
            return "The frame does not have exactly 921,600 bytes (640x480 RGB).";
        case failure::frame_blank:
            return "The frame shows nothing that stands out from its background.";
    }
    return "Unknown failure.";
}

}  // namespace accel::examples::digits
