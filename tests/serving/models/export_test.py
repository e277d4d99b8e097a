# SPDX-License-Identifier: Apache-2.0
"""The networks that examples/serving/export.py writes: sizes, numbers of parameters, the same weights each time.

Skipped (77) where python3 has no PyTorch. With a folder as its argument it also writes the smallest as TorchScript."""

import argparse
import contextlib
import io
import pathlib
import subprocess
import sys
import unittest

SERVING = pathlib.Path(__file__).resolve().parents[3] / "examples" / "serving"
sys.path.insert(0, str(SERVING))
try:
    import torch

    import export
    import networks
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    print("skipped: python3 has no PyTorch")
    sys.exit(77)


def as_list(outputs):
    return [outputs] if torch.is_tensor(outputs) else list(outputs)


class Networks(unittest.TestCase):
    def test_numbers_of_parameters_are_the_published_ones(self):
        for name, make in networks.NETWORKS.items():
            with self.subTest(name), torch.device("meta"):
                self.assertEqual(networks.parameters_of(make()), networks.PARAMETERS[name])

    def test_outputs_have_the_shapes_of_the_table(self):
        for name, make in networks.NETWORKS.items():
            with self.subTest(name), torch.device("meta"):
                outputs = as_list(make().eval()(torch.zeros(networks.input_shape(name))))
                self.assertEqual([list(each.shape) for each in outputs], networks.output_shapes(name))

    def test_the_table_of_the_server_says_the_same(self):
        table = (SERVING / "models" / "table.cpp").read_text()
        for name in networks.NETWORKS:
            with self.subTest(name):
                self.assertIn(f'"{name}"', table)
        for shapes in networks.OUTPUTS.values():
            for shape in shapes:
                self.assertIn("{" + ", ".join(map(str, shape)) + "}", table)

    def test_weights_are_the_same_each_time_and_answers_depend_on_the_image(self):
        first, second = networks.make("mobilenet_v3"), networks.make("mobilenet_v3")
        images = torch.rand([2] + networks.input_shape("mobilenet_v3")[1:])
        answers = first(images)
        self.assertTrue(torch.equal(answers, second(images)))
        self.assertGreater((answers[0] - answers[1]).abs().max(), 1e-3 * answers.abs().max())

    def test_rows_of_a_batch_of_deeplab_lie_by_image(self):
        network = networks.make("deeplab_v3")
        images = torch.rand(2, 3, 64, 64)
        self.assertTrue(torch.allclose(network(images)[2:], network(images[1:]), atol=1e-2))


class Export(unittest.TestCase):
    folder = None

    def test_a_compiler_that_takes_too_long_is_ended_and_named(self):
        seconds = {"resnet50": "0", "yolo_v4": "600"}
        started = []

        def start(name, *_):
            started.append(subprocess.Popen(["sleep", seconds[name]], start_new_session=True))
            return started[-1]
        usual, export.start_compiler = export.start_compiler, start
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                export.compile_within(argparse.Namespace(only=list(seconds), within=1.0, out=pathlib.Path("models")))
        finally:
            export.start_compiler = usual
        self.assertIn("resnet50: compiled", said.getvalue())
        self.assertIn("yolo_v4: not compiled within 1 s", said.getvalue())
        self.assertTrue(all(each.poll() is not None for each in started))

    def test_an_exported_file_answers_like_its_network(self):
        if self.folder is None:
            self.skipTest("no folder to write to")
        command = [sys.executable, str(SERVING / "export.py"), "--out", self.folder, "--only", "mobilenet_v3"]
        subprocess.run(command, check=True, timeout=240)
        image = torch.rand(networks.input_shape("mobilenet_v3"))
        written = torch.jit.load(pathlib.Path(self.folder) / "mobilenet_v3.pt")
        expected = networks.make("mobilenet_v3")(image)
        self.assertTrue(torch.allclose(written(image), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Export.folder = sys.argv.pop()
    unittest.main()
