// SPDX-License-Identifier: Apache-2.0
// HOUSE_seeds FOLDER: writes the seeds of each fuzz target of the house to FOLDER/SUBJECT/. They are committed; run it
// again when a format changes.
#include "seed_folder.hpp"

#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: " << argv[0] << " FOLDER\n";
        return 2;
    }
    accel::tests::write_seeds(argv[1]);
    return 0;
}
