#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the digits network and writes weights.bin, test_images.bin and reference_scores.csv.

`train.py` writes beside itself. `train.py --validate` holds out a part of the training images instead
and writes nothing: settings are chosen with it, so that the 500 test images decide nothing.
"""

import argparse
import pathlib

import numpy as np
from sklearn.datasets import load_digits

from training import cnn, files, views

SEED = 20240229
TRAINING_IMAGES = 1297
VALIDATION_IMAGES = 300
FRAMES_PER_IMAGE = 8
EPOCHS = 60
BATCH = 64
PEAK_RATE = 3e-3
WEIGHT_DECAY = 0.02
DROPPED = 0.2
LABEL_SMOOTHING = 0.05
REFERENCE_IMAGES = 16


def split_digits(rng):
    """(training images, labels), (test images, labels); images are (count, 8, 8) with values 0..16."""
    digits = load_digits()
    order = rng.permutation(len(digits.images))
    training, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return (digits.images[training], digits.target[training]), (digits.images[test], digits.target[test])


def smooth_targets(labels):
    exact = np.eye(cnn.CLASSES, dtype=np.float32)[labels]
    return exact * np.float32(1 - LABEL_SMOOTHING) + np.float32(LABEL_SMOOTHING / cnn.CLASSES)


def frame_views(tensors, rng):
    """(FRAMES_PER_IMAGE, count, 8, 8): every image bent a little, drawn on a page and found again."""
    rounds = range(FRAMES_PER_IMAGE)
    return np.array([[views.through_a_frame(views.distorted(t, rng), rng) for t in tensors] for _ in rounds])


def epoch_tensors(tensors, framed, rng):
    """One epoch's tensors: every image once bent or as it is, and once from a frame."""
    bent = [views.distorted(t, rng) if rng.random() < 0.7 else t for t in tensors]
    chosen = framed[rng.integers(0, len(framed), len(tensors)), np.arange(len(tensors))]
    return np.concatenate([np.array(bent, np.float32), chosen])


def learning_rate(progress):
    """Warms up over the first twentieth, then falls along a cosine to zero."""
    return PEAK_RATE * min(1.0, progress * 20) * 0.5 * (1 + np.cos(np.pi * progress))


def train(tensors, labels, rng):
    parameters = cnn.initial_parameters(rng)
    adam = cnn.Adam(parameters, WEIGHT_DECAY)
    framed = frame_views(tensors, rng)
    targets = smooth_targets(np.concatenate([labels, labels]))
    for epoch in range(EPOCHS):
        seen = epoch_tensors(tensors, framed, rng)
        order = rng.permutation(len(seen))
        wrong = 0
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            drop = (rng.random((len(batch), cnn.POOLED)) >= DROPPED).astype(np.float32) / np.float32(1 - DROPPED)
            scores, saved = cnn.forward(parameters, seen[batch], drop)
            rate = learning_rate((epoch + start / len(order)) / EPOCHS)
            adam.step(parameters, cnn.backward(parameters, saved, targets[batch]), rate)
            wrong += int((scores.argmax(1) != targets[batch].argmax(1)).sum())
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: {100 * wrong / len(order):.2f} % of the training views wrong", flush=True)
    return parameters


def report(name, parameters, tensors, labels, rng):
    framed = np.array([views.through_a_frame(t, rng) for t in tensors])
    for path, seen in (("tensors", tensors), ("frames", framed)):
        right = int((cnn.forward(parameters, seen)[0].argmax(1) == labels).sum())
        print(f"{name} {path}: {right} of {len(labels)} right ({100 * right / len(labels):.2f} %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--validate", action="store_true", help="hold out training images, write nothing")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    arguments = parser.parse_args()

    rng = np.random.default_rng(SEED)
    (images, labels), (test_images, test_labels) = split_digits(rng)
    tensors = (images / 16).astype(np.float32)
    if arguments.validate:
        kept = TRAINING_IMAGES - VALIDATION_IMAGES
        parameters = train(tensors[:kept], labels[:kept], rng)
        report("validation", parameters, tensors[kept:], labels[kept:], rng)
        return

    parameters = train(tensors, labels, rng)
    test_tensors = (test_images / 16).astype(np.float32)
    report("test", parameters, test_tensors, test_labels, rng)
    scores, _ = cnn.forward(parameters, test_tensors[:REFERENCE_IMAGES])
    files.write_weights(arguments.out / "weights.bin", parameters)
    files.write_images(arguments.out / "test_images.bin", test_images, test_labels)
    files.write_reference_scores(arguments.out / "reference_scores.csv", range(REFERENCE_IMAGES), scores)


if __name__ == "__main__":
    main()
