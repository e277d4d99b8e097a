# SPDX-License-Identifier: Apache-2.0
"""A stock tritonclient, over HTTP or gRPC, with a model whose shapes are its requests', and with strings (BYTES)."""
from pair import expect

STRINGS = [["one"], ["", "two words", "\u00e9\n\"\\"], [str(n) for n in range(300)]]


def strings_of(numpy, values, kind=object):
    return numpy.array(values, dtype=kind)


def check_open_shapes(module, numpy, utils, client, **binary):
    """`module` is tritonclient.http or tritonclient.grpc; `binary` is how HTTP sends and gets tensors."""
    for count, values in enumerate(STRINGS, 1):
        strings = strings_of(numpy, values)
        numbers = numpy.arange(2 * count, dtype=numpy.float32).reshape(count, 2)
        s, n = module.InferInput("s", strings.shape, "BYTES"), module.InferInput("n", numbers.shape, "FP32")
        s.set_data_from_numpy(strings, **binary)
        n.set_data_from_numpy(numbers, **binary)
        asked = [module.InferRequestedOutput(name, **binary) for name in ("n", "s")]
        answer = client.infer("reflect", [n, s], outputs=asked)
        got = [each.decode() if isinstance(each, bytes) else each for each in answer.as_numpy("s").tolist()]
        expect(got == values, f"strings come back: {got}")
        expect(answer.as_numpy("n").tolist() == numbers.tolist(), "numbers come back in their shape")
    check_mistakes(module, numpy, utils, client, **binary)


def check_mistakes(module, numpy, utils, client, **binary):
    s = module.InferInput("s", [1], "BYTES")
    s.set_data_from_numpy(strings_of(numpy, ["a"]), **binary)
    for word, shape in [("the shape must be [-1,2]", [2, 3]), ("the shape must be [-1,2]", [2]),
                        ("4096 bytes", [520, 2])]:
        n = module.InferInput("n", shape, "FP32")
        n.set_data_from_numpy(numpy.zeros(shape, numpy.float32), **binary)
        refused(utils, word, lambda: client.infer("reflect", [s, n]))
    n = module.InferInput("n", [1, 2], "FP32")
    n.set_data_from_numpy(numpy.zeros([1, 2], numpy.float32), **binary)
    s.set_data_from_numpy(strings_of(numpy, ["a" * 4093]), **binary)
    refused(utils, "4096 bytes", lambda: client.infer("reflect", [s, n]))
    s.set_data_from_numpy(strings_of(numpy, ["a"]), **binary)
    refused(utils, "not the outputs", lambda: client.infer("cut", [s]))


def refused(utils, word, call):
    try:
        call()
        expect(False, f"{word}: a mistake is an exception")
    except utils.InferenceServerException as failure:
        expect(word in failure.message(), f"{word}: {failure}")


def check_documents(shape_of, datatype_of, inputs):
    expect([list(map(int, shape_of(each))) for each in inputs] == [[-1], [-1, 2]], "variable dimensions are -1")
    expect([datatype_of(each) for each in inputs] == ["BYTES", "FP32"], "and strings are BYTES")
