# SPDX-License-Identifier: Apache-2.0
"""Prints the references of tests/serving/models/image_test.cpp: what torchvision makes of the same images on the CPU.

Needs torch and torchvision (made with 2.11 and 0.26). The tests themselves need neither.
"""

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZES = [
    (500, 546, 224, 224),
    (500, 546, 416, 416),
    (500, 546, 520, 520),
    (7, 5, 3, 4),
    (31, 17, 64, 53),
    (1, 1, 2, 3),
    (480, 640, 33, 57),
]


def noise_image(height, width, seed):
    """The bytes of tests/serving/models/images.hpp."""
    value = (torch.arange(height * width * 3) * 1103515245 + seed * 12345) & 0xFFFFFFFF
    value = ((value ^ (value >> 15)) * 2654435761) & 0xFFFFFFFF
    return (value >> 24).to(torch.uint8).reshape(height, width, 3)


def main():
    for height, width, to_height, to_width in SIZES:
        image = noise_image(height, width, height + width).permute(2, 0, 1).unsqueeze(0).float() / 255
        resized = functional.resize(
            image, [to_height, to_width], interpolation=InterpolationMode.BILINEAR, antialias=False
        )
        values = functional.normalize(resized, MEAN, DEVIATION).flatten()
        count = values.numel()
        places = [0, 1, count // 5, count // 3, count // 2, 2 * count // 3, 4 * count // 5, count - 2, count - 1]
        samples = ", ".join(f"{{{place}, {values[place]:.6f}f}}" for place in places)
        total = values.double().abs().sum()
        print(f"{{{{{height}, {width}}}, {{{to_height}, {to_width}}}, {total:.4f}, {{{{{samples}}}}}}},")


if __name__ == "__main__":
    main()
