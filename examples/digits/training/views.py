# SPDX-License-Identifier: Apache-2.0
"""The two ways in which the network meets a digit.

`distorted` bends a tensor a little. `through_a_frame` draws the digit on a page and finds it again, as
frame.cpp and preprocess.cpp do; it works on the 160x120 grid of 4x4-pixel means that preprocess.cpp
computes first, so that thousands of frames take seconds.
"""

import numpy as np

GRID_ROWS, GRID_COLUMNS = 120, 160
CELL_PIXELS = 4
CORNER = 8
MARGIN = 40.0 / CELL_PIXELS
INK_THRESHOLD = 0.25
CELL_NOISE = 5.0 / CELL_PIXELS


def sample(image, y, x):
    """Bilinear samples of `image` at (y, x); a pixel's centre is its index; zero outside."""
    padded = np.pad(image, 1)
    y = np.clip(y + 1.0, 0.0, image.shape[0] + 1.0)
    x = np.clip(x + 1.0, 0.0, image.shape[1] + 1.0)
    top = np.minimum(y.astype(int), image.shape[0])
    left = np.minimum(x.astype(int), image.shape[1])
    down, right = y - top, x - left
    upper = padded[top, left] * (1 - right) + padded[top, left + 1] * right
    lower = padded[top + 1, left] * (1 - right) + padded[top + 1, left + 1] * right
    return upper * (1 - down) + lower * down


def distorted(image, rng):
    """`image` (8, 8) turned by up to 12 degrees, sheared, scaled and shifted a little."""
    angle, shear = rng.uniform(-0.21, 0.21), rng.uniform(-0.15, 0.15)
    scale_y, scale_x = rng.uniform(0.92, 1.1, 2)
    shift_y, shift_x = rng.uniform(-0.4, 0.4, 2)
    y, x = np.mgrid[0:8, 0:8] - 3.5
    turned_y = (np.cos(angle) * y - np.sin(angle) * x) * scale_y + shift_y
    turned_x = (np.sin(angle) * y + np.cos(angle) * x) * scale_x + shear * y + shift_x
    return sample(image, turned_y + 3.5, turned_x + 3.5)


def draw(image, rng):
    """The grey grid of a frame with `image` on it: dark ink on paper or chalk on a board."""
    height = rng.uniform(160.0, 360.0) / CELL_PIXELS
    width = height * rng.uniform(0.9, 1.1)
    top = rng.uniform(MARGIN, GRID_ROWS - MARGIN - height)
    left = rng.uniform(MARGIN, GRID_COLUMNS - MARGIN - width)
    paper, ink = rng.uniform(170, 235), rng.uniform(20, 80)
    if rng.random() < 0.5:
        paper, ink = rng.uniform(25, 70), rng.uniform(190, 240)
    y, x = np.mgrid[0:GRID_ROWS, 0:GRID_COLUMNS] + 0.5
    cover = sample(image, (y - top) * 8 / height - 0.5, (x - left) * 8 / width - 0.5)
    light = rng.uniform(-20, 20) * (y / GRID_ROWS - 0.5) + rng.uniform(-20, 20) * (x / GRID_COLUMNS - 0.5)
    grey = paper + (ink - paper) * cover + light + rng.standard_normal(y.shape) * CELL_NOISE
    return np.clip(grey, 0, 255)


def background(grid):
    """The page's own grey at every cell: level between the means of the four corners."""
    far = slice(-CORNER, None)
    near = slice(0, CORNER)
    corners = np.array([[grid[r, c].mean() for c in (near, far)] for r in (near, far)])
    middle = (CORNER - 1) / 2
    down = ((np.arange(GRID_ROWS) - middle) / (GRID_ROWS - CORNER))[:, None]
    right = ((np.arange(GRID_COLUMNS) - middle) / (GRID_COLUMNS - CORNER))[None, :]
    upper = corners[0, 0] * (1 - right) + corners[0, 1] * right
    lower = corners[1, 0] * (1 - right) + corners[1, 1] * right
    return upper * (1 - down) + lower * down


def overlap(start, length, cells):
    """(8, cells): how much of every cell lies in each eighth of [start, start + length)."""
    edges = start + length * np.arange(9) / 8
    cell = np.arange(cells)
    covered = np.minimum(edges[1:, None], cell + 1) - np.maximum(edges[:-1, None], cell)
    return np.maximum(covered, 0)


def find(grid):
    """The tensor of the digit on a grey grid, as preprocess.cpp computes it."""
    ink = np.abs(grid - background(grid))
    marked = ink >= ink.max() * INK_THRESHOLD
    rows, columns = np.flatnonzero(marked.any(1)), np.flatnonzero(marked.any(0))
    height, width = rows[-1] + 1 - rows[0], columns[-1] + 1 - columns[0]
    side = max(height, width)
    top = rows[0] + (height - side) / 2
    left = columns[0] + (width - side) / 2
    tensor = overlap(top, side, GRID_ROWS) @ ink @ overlap(left, side, GRID_COLUMNS).T
    return tensor / tensor.max()


def through_a_frame(image, rng):
    """`image` (8, 8) in [0, 1] drawn on a page and found again."""
    return find(draw(image, rng)).astype(np.float32)
