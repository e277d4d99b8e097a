# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network in plain numpy: forward, backward, Adam.

Images are (count, row, column, channel). Weights lie output-last, the order in which network_math.hpp
reads them: convolution (3, 3, inputs, outputs), dense (inputs, outputs).
"""

import numpy as np

CONV1_CHANNELS = 8
CONV2_CHANNELS = 16
HIDDEN = 32
CLASSES = 10
POOLED = 4 * 4 * CONV2_CHANNELS

SHAPES = {
    "conv1_weights": (3, 3, 1, CONV1_CHANNELS),
    "conv1_bias": (CONV1_CHANNELS,),
    "conv2_weights": (3, 3, CONV1_CHANNELS, CONV2_CHANNELS),
    "conv2_bias": (CONV2_CHANNELS,),
    "hidden_weights": (POOLED, HIDDEN),
    "hidden_bias": (HIDDEN,),
    "output_weights": (HIDDEN, CLASSES),
    "output_bias": (CLASSES,),
}


def initial_parameters(rng):
    """He initialisation; biases are zero."""
    parameters = {}
    for name, shape in SHAPES.items():
        fan_in = int(np.prod(shape[:-1]))
        scale = 0.0 if name.endswith("bias") else np.sqrt(2.0 / fan_in)
        parameters[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return parameters


def patches(images):
    """Every pixel's 3x3 neighbourhood (zero outside): (count, 8, 8, 9 * channels)."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = images.shape[1:3]
    shifted = [padded[:, y : y + rows, x : x + columns] for y in range(3) for x in range(3)]
    return np.concatenate(shifted, axis=3)


def patches_backward(gradient, channels):
    """The gradient of `patches`: every neighbourhood's share added back where it came from."""
    count, rows, columns, _ = gradient.shape
    padded = np.zeros((count, rows + 2, columns + 2, channels), np.float32)
    for tap in range(9):
        y, x = divmod(tap, 3)
        padded[:, y : y + rows, x : x + columns] += gradient[..., tap * channels : (tap + 1) * channels]
    return padded[:, 1:-1, 1:-1]


def forward(parameters, tensors, drop=None):
    """Class probabilities for tensors (count, 8, 8), and what `backward` needs."""
    p = parameters
    s = {}
    s["in1"] = patches(tensors[..., None])
    s["conv1"] = np.maximum(s["in1"] @ p["conv1_weights"].reshape(9, -1) + p["conv1_bias"], 0)
    s["in2"] = patches(s["conv1"])
    s["conv2"] = np.maximum(s["in2"] @ p["conv2_weights"].reshape(9 * CONV1_CHANNELS, -1) + p["conv2_bias"], 0)
    blocks = s["conv2"].reshape(-1, 4, 2, 4, 2, CONV2_CHANNELS)
    pooled = blocks.max(axis=(2, 4))
    s["drop"] = drop if drop is not None else np.float32(1)
    s["pooled"] = pooled.reshape(-1, POOLED) * s["drop"]
    s["chosen"] = blocks == pooled[:, :, None, :, None]
    s["hidden"] = np.maximum(s["pooled"] @ p["hidden_weights"] + p["hidden_bias"], 0)
    logits = s["hidden"] @ p["output_weights"] + p["output_bias"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    s["scores"] = powers / powers.sum(axis=1, keepdims=True)
    return s["scores"], s


def backward(parameters, s, targets):
    """Gradients of the mean cross-entropy against `targets` (count, 10)."""
    p = parameters
    g = {}
    d = (s["scores"] - targets) / np.float32(len(targets))
    g["output_weights"], g["output_bias"] = s["hidden"].T @ d, d.sum(0)
    d = (d @ p["output_weights"].T) * (s["hidden"] > 0)
    g["hidden_weights"], g["hidden_bias"] = s["pooled"].T @ d, d.sum(0)
    d = (d @ p["hidden_weights"].T) * s["drop"]
    d = s["chosen"] * d.reshape(-1, 4, 1, 4, 1, CONV2_CHANNELS)
    d = d.reshape(s["conv2"].shape) * (s["conv2"] > 0)
    g["conv2_weights"] = np.tensordot(s["in2"], d, axes=((0, 1, 2), (0, 1, 2))).reshape(SHAPES["conv2_weights"])
    g["conv2_bias"] = d.sum((0, 1, 2))
    d = patches_backward(d @ p["conv2_weights"].reshape(9 * CONV1_CHANNELS, -1).T, CONV1_CHANNELS)
    d = d * (s["conv1"] > 0)
    g["conv1_weights"] = np.tensordot(s["in1"], d, axes=((0, 1, 2), (0, 1, 2))).reshape(SHAPES["conv1_weights"])
    g["conv1_bias"] = d.sum((0, 1, 2))
    return g


class Adam:
    """Adam with decoupled weight decay; biases do not decay."""

    def __init__(self, parameters, decay):
        self.decay = decay
        self.step_count = 0
        self.mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in parameters.items()}

    def step(self, parameters, gradients, rate):
        self.step_count += 1
        for name, gradient in gradients.items():
            self.mean[name] += (gradient - self.mean[name]) * np.float32(0.1)
            self.square[name] += (gradient**2 - self.square[name]) * np.float32(0.001)
            mean = self.mean[name] / np.float32(1 - 0.9**self.step_count)
            square = self.square[name] / np.float32(1 - 0.999**self.step_count)
            decay = 0.0 if name.endswith("bias") else self.decay
            parameters[name] -= np.float32(rate) * (mean / (np.sqrt(square) + np.float32(1e-8)))
            parameters[name] *= np.float32(1 - rate * decay)
