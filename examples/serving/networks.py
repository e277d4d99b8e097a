# SPDX-License-Identifier: Apache-2.0
"""The six networks of Hanafy et al., Table II, on torch alone: MobileNetV3-Large, ResNet50, EfficientNetB0, Wide
ResNet101-2, YoloV4, and DeepLabV3 on ResNet50; and the super-resolution of Girondi et al. (Shi et al., CVPR 2016).
Weights are random; layers and sizes are the published ones."""

import torch
from torch import nn
from torch.nn import functional


def conv_norm(inputs, outputs, kernel=1, stride=1, groups=1, dilation=1, act=None, epsilon=1e-5):
    """Convolution without bias, batch normalisation, activation; keeps the size, but for the stride."""
    padding = (kernel - 1) // 2 * dilation
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, epsilon), *([act()] if act else []))


class Squeeze(nn.Module):
    """Squeeze-and-excitation: scales each channel by what all of the image says."""

    def __init__(self, channels, squeezed, act, gate):
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), act(), nn.Conv2d(squeezed, channels, 1), gate()
        )

    def forward(self, x):
        return x * self.weigh(x)


class InvertedResidual(nn.Module):
    """Widens, filters each channel, squeezes if wanted, narrows; adds its input where sizes are equal."""

    def __init__(self, inputs, wide, outputs, kernel, stride, act, squeeze=None, epsilon=1e-5):
        super().__init__()
        layers = [conv_norm(inputs, wide, act=act, epsilon=epsilon)] if wide != inputs else []
        layers.append(conv_norm(wide, wide, kernel, stride, groups=wide, act=act, epsilon=epsilon))
        if squeeze:
            layers.append(squeeze)
        layers.append(conv_norm(wide, outputs, epsilon=epsilon))
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


def classifier(features, *layers):
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), *layers)


def multiple_of_8(value):
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


def mobilenet_v3():
    relu, hard = nn.ReLU, nn.Hardswish
    # kernel, widened to, outputs, squeezes, activation, stride
    rows = [
        (3, 16, 16, False, relu, 1),
        (3, 64, 24, False, relu, 2),
        (3, 72, 24, False, relu, 1),
        (5, 72, 40, True, relu, 2),
        (5, 120, 40, True, relu, 1),
        (5, 120, 40, True, relu, 1),
        (3, 240, 80, False, hard, 2),
        (3, 200, 80, False, hard, 1),
        (3, 184, 80, False, hard, 1),
        (3, 184, 80, False, hard, 1),
        (3, 480, 112, True, hard, 1),
        (3, 672, 112, True, hard, 1),
        (5, 672, 160, True, hard, 2),
        (5, 960, 160, True, hard, 1),
        (5, 960, 160, True, hard, 1),
    ]
    layers, inputs = [conv_norm(3, 16, 3, 2, act=hard, epsilon=1e-3)], 16
    for kernel, wide, outputs, squeezes, act, stride in rows:
        squeeze = Squeeze(wide, multiple_of_8(wide / 4), relu, nn.Hardsigmoid) if squeezes else None
        layers.append(InvertedResidual(inputs, wide, outputs, kernel, stride, act, squeeze, 1e-3))
        inputs = outputs
    layers.append(conv_norm(inputs, 960, act=hard, epsilon=1e-3))
    return classifier(nn.Sequential(*layers), nn.Linear(960, 1280), hard(), nn.Linear(1280, 1000))


def efficientnet_b0():
    # widening, kernel, stride, outputs, how many
    rows = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]
    layers, inputs = [conv_norm(3, 32, 3, 2, act=nn.SiLU)], 32
    for widening, kernel, stride, outputs, count in rows:
        for i in range(count):
            wide = inputs * widening
            squeeze = Squeeze(wide, max(1, inputs // 4), nn.SiLU, nn.Sigmoid)
            layers.append(
                InvertedResidual(inputs, wide, outputs, kernel, stride if i == 0 else 1, nn.SiLU, squeeze)
            )
            inputs = outputs
    layers.append(conv_norm(inputs, 1280, act=nn.SiLU))
    return classifier(nn.Sequential(*layers), nn.Linear(1280, 1000))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, outputs, stride, dilation):
        super().__init__()
        self.layers = nn.Sequential(
            conv_norm(inputs, width, act=nn.ReLU),
            conv_norm(width, width, 3, stride, dilation=dilation, act=nn.ReLU),
            conv_norm(width, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, stride=stride)

    def forward(self, x):
        return functional.relu(self.shortcut(x) + self.layers(x))


def residual_stage(inputs, width, outputs, count, stride, first_dilation=1, dilation=1):
    blocks = [Bottleneck(inputs, width, outputs, stride, first_dilation)]
    blocks += [Bottleneck(outputs, width, outputs, 1, dilation) for _ in range(count - 1)]
    return nn.Sequential(*blocks)


def residual_stem():
    return nn.Sequential(conv_norm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1))


def resnet(counts, widening):
    layers, inputs = [residual_stem()], 64
    for i, count in enumerate(counts):
        outputs = 256 << i
        layers.append(residual_stage(inputs, (64 << i) * widening, outputs, count, 1 if i == 0 else 2))
        inputs = outputs
    return classifier(nn.Sequential(*layers), nn.Linear(2048, 1000))


def resnet50():
    return resnet([3, 4, 6, 3], 1)


def wide_resnet101():
    return resnet([3, 4, 23, 3], 2)


class PyramidPooling(nn.Module):
    """Atrous spatial pyramid pooling: the same image at several scales, and its mean."""

    def __init__(self, inputs, outputs=256):
        super().__init__()
        self.scales = nn.ModuleList([conv_norm(inputs, outputs, act=nn.ReLU)])
        self.scales.extend(conv_norm(inputs, outputs, 3, dilation=rate, act=nn.ReLU) for rate in (12, 24, 36))
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_norm(inputs, outputs, act=nn.ReLU))
        self.project = conv_norm(5 * outputs, outputs, act=nn.ReLU)

    def forward(self, x):
        parts = [scale(x) for scale in self.scales]
        parts.append(functional.interpolate(self.mean(x), x.shape[-2:], mode="bilinear", align_corners=False))
        return self.project(torch.cat(parts, 1))


class DeepLabV3(nn.Module):
    """Gives the classes of the pixels and those of its auxiliary head, as two rows for each image."""

    def __init__(self, classes=21):
        super().__init__()
        self.early = nn.Sequential(
            residual_stem(),
            residual_stage(64, 64, 256, 3, 1),
            residual_stage(256, 128, 512, 4, 2),
            residual_stage(512, 256, 1024, 6, 1, 1, 2),
        )
        self.late = residual_stage(1024, 512, 2048, 3, 1, 2, 4)
        self.head = nn.Sequential(
            PyramidPooling(2048), conv_norm(256, 256, 3, act=nn.ReLU), nn.Conv2d(256, classes, 1)
        )
        self.auxiliary = nn.Sequential(conv_norm(1024, 256, 3, act=nn.ReLU), nn.Conv2d(256, classes, 1))

    def forward(self, x):
        early = self.early(x)
        both = [self.head(self.late(early)), self.auxiliary(early)]
        size = x.shape[-2:]
        both = [functional.interpolate(each, size, mode="bilinear", align_corners=False) for each in both]
        return torch.stack(both, 1).flatten(0, 1)


def mish(inputs, outputs, kernel=1, stride=1):
    return conv_norm(inputs, outputs, kernel, stride, act=nn.Mish)


def leaky(inputs, outputs, kernel=1, stride=1):
    return conv_norm(inputs, outputs, kernel, stride, act=lambda: nn.LeakyReLU(0.1))


class Residual(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.layers = nn.Sequential(mish(channels, inner), mish(inner, channels, 3))

    def forward(self, x):
        return x + self.layers(x)


class CrossStage(nn.Module):
    """A stage of CSPDarknet53: half of the channels pass by the residual blocks."""

    def __init__(self, inputs, outputs, count, half):
        super().__init__()
        self.down = mish(inputs, outputs, 3, 2)
        self.by = mish(outputs, half)
        inner = half if count > 1 else half // 2
        self.through = nn.Sequential(
            mish(outputs, half), *(Residual(half, inner) for _ in range(count)), mish(half, half)
        )
        self.join = mish(2 * half, outputs)

    def forward(self, x):
        x = self.down(x)
        return self.join(torch.cat([self.through(x), self.by(x)], 1))


class SpatialPooling(nn.Module):
    def forward(self, x):
        return torch.cat([functional.max_pool2d(x, size, 1, size // 2) for size in (13, 9, 5)] + [x], 1)


def five(inputs, channels):
    """Five convolutions, narrow and wide in turn."""
    wide = 2 * channels
    return nn.Sequential(
        leaky(inputs, channels),
        leaky(channels, wide, 3),
        leaky(wide, channels),
        leaky(channels, wide, 3),
        leaky(wide, channels),
    )


def yolo_head(channels, values):
    return nn.Sequential(leaky(channels, 2 * channels, 3), nn.Conv2d(2 * channels, values, 1))


class YoloV4(nn.Module):
    """CSPDarknet53, SPP, PANet and three heads, fine to coarse: 3 anchors of 80 classes, a box and a score."""

    def __init__(self, values=255):
        super().__init__()
        self.fine = nn.Sequential(
            mish(3, 32, 3), CrossStage(32, 64, 1, 64), CrossStage(64, 128, 2, 64), CrossStage(128, 256, 8, 128)
        )
        self.middle = CrossStage(256, 512, 8, 256)
        self.coarse = CrossStage(512, 1024, 4, 512)
        self.pooled = nn.Sequential(
            leaky(1024, 512),
            leaky(512, 1024, 3),
            leaky(1024, 512),
            SpatialPooling(),
            leaky(2048, 512),
            leaky(512, 1024, 3),
            leaky(1024, 512),
        )
        self.up_middle, self.side_middle, self.in_middle = leaky(512, 256), leaky(512, 256), five(512, 256)
        self.up_fine, self.side_fine, self.in_fine = leaky(256, 128), leaky(256, 128), five(256, 128)
        self.down_middle, self.out_middle = leaky(128, 256, 3, 2), five(512, 256)
        self.down_coarse, self.out_coarse = leaky(256, 512, 3, 2), five(1024, 512)
        self.heads = nn.ModuleList(yolo_head(channels, values) for channels in (128, 256, 512))

    def forward(self, x):
        fine = self.fine(x)
        middle = self.middle(fine)
        coarse = self.pooled(self.coarse(middle))
        above = functional.interpolate(self.up_middle(coarse), scale_factor=2.0)
        middle = self.in_middle(torch.cat([self.side_middle(middle), above], 1))
        above = functional.interpolate(self.up_fine(middle), scale_factor=2.0)
        fine = self.in_fine(torch.cat([self.side_fine(fine), above], 1))
        middle = self.out_middle(torch.cat([self.down_middle(fine), middle], 1))
        coarse = self.out_coarse(torch.cat([self.down_coarse(middle), coarse], 1))
        return self.heads[0](fine), self.heads[1](middle), self.heads[2](coarse)


def super_resolution(factor=3):
    """Works on the brightness of a small image, and arranges what it finds as the pixels of a large one."""
    layers, inputs = [], 1
    for outputs, kernel in ((64, 5), (64, 3), (32, 3)):
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Conv2d(inputs, factor**2, 3, padding=1), nn.PixelShuffle(factor))


NETWORKS = {
    "mobilenet_v3": mobilenet_v3,
    "resnet50": resnet50,
    "efficientnet_b0": efficientnet_b0,
    "wide_resnet101": wide_resnet101,
    "yolo_v4": YoloV4,
    "deeplab_v3": DeepLabV3,
    "super_resolution": super_resolution,
}
# As the table of examples/serving/models/table.cpp has them, and the published numbers of parameters.
SIDES = {"yolo_v4": 416, "deeplab_v3": 520}
CHANNELS = {"super_resolution": 1}
OUTPUTS = {
    "yolo_v4": [[1, 255, 52, 52], [1, 255, 26, 26], [1, 255, 13, 13]],
    "deeplab_v3": [[2, 21, 520, 520]],
    "super_resolution": [[1, 1, 672, 672]],
}
PARAMETERS = {
    "mobilenet_v3": 5_483_032,
    "resnet50": 25_557_032,
    "efficientnet_b0": 5_288_548,
    "wide_resnet101": 126_886_696,
    "yolo_v4": 64_363_101,
    "deeplab_v3": 42_004_074,
    "super_resolution": 59_657,
}


def input_shape(name):
    side = SIDES.get(name, 224)
    return [1, CHANNELS.get(name, 3), side, side]


def output_shapes(name):
    return OUTPUTS.get(name, [[1, 1000]])


def initialise(network):
    """Random weights under which outputs depend on the image and stay within half precision: branches that are added
    to their input weigh less, and more where gates halve them."""
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in network.modules():
        if isinstance(module, (InvertedResidual, Bottleneck, Residual)):
            norms = [each for each in module.layers.modules() if isinstance(each, nn.BatchNorm2d)]
            nn.init.constant_(norms[-1].weight, 1 if isinstance(module, InvertedResidual) else 0.5)


def make(name, seed=0):
    """A network of random weights, the same for the same seed, ready for inference."""
    torch.manual_seed(seed)
    network = NETWORKS[name]()
    initialise(network)
    return network.eval().requires_grad_(False)


def parameters_of(network):
    return sum(each.numel() for each in network.parameters())
