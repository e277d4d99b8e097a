// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/model_options.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <utility>

namespace accel::examples::serving::doors {

result<std::vector<oip::model_description>> read_descriptions(std::span<const std::string> files) {
    std::vector<oip::model_description> out;
    for (const std::string& path : files) {
        auto one = oip::read_description_file(path);
        if (!one) return one.error();
        out.push_back(std::move(one).value());
    }
    return out;
}

result<model_place> read_model_place(const std::string& text) {
    const std::size_t end = text.find('=');
    if (end == std::string::npos || end == 0 || end + 1 == text.size())
        return oip::refusal(status::invalid_argument, oip::in_quotes(text) + " is not valid: expected NAME=URI");
    return model_place{text.substr(0, end), text.substr(end + 1)};
}

}  // namespace accel::examples::serving::doors
