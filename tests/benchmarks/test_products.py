import numpy as np
import onnxruntime
import pytest

from benchmarks.products import LIBRARIES, Library, Product, matrices, product_graph

EVERY = (Product(4, 8, 16), Product(3, 5, 7))


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_library_multiplies(name, monkeypatch):
    monkeypatch.setattr("benchmarks.products.OPERATIONS", 1e4)
    rates = Library(name, EVERY, threads=1)
    for _, multiply in rates.every:
        multiply()
    assert all(rate > 0 for rate in Library(name, EVERY[:1], threads=1).gflops())


def test_graph_is_the_product():
    left, right = matrices(EVERY[1])
    session = onnxruntime.InferenceSession(
        product_graph(EVERY[1], right).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"left": left})
    np.testing.assert_allclose(found, left @ right, rtol=1e-5)


def test_operations_are_multiplications_and_additions():
    assert Product(2, 3, 4).flops == 48
    assert str(Product(2, 3, 4)) == "2 x 3 x 4"
