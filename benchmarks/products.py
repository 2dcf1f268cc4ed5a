"""How fast libraries multiply matrices in float32."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

TORCH = "torch (MKL)"
NUMPY = "numpy (OpenBLAS)"
ONNXRUNTIME = "onnxruntime"
LIBRARIES = (TORCH, NUMPY, ONNXRUNTIME)

OPSET = 20
IR_VERSION = 10
OPERATIONS = 2e9
"""Least of one measurement of a product, so that it takes some ten milliseconds."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of [m, k] and [k, n]."""

    m: int
    k: int
    n: int

    def __str__(self) -> str:
        return f"{self.m} x {self.k} x {self.n}"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.k * self.n


class Multiplier(Protocol):
    """A library that multiplies matrices."""

    def ready(self, product: Product) -> Callable[[], object]:
        """What computes a product of random matrices."""
        ...


class TorchMultiplier:
    """PyTorch, which has MKL do it."""

    def ready(self, product: Product) -> Callable[[], object]:
        """See :class:`Multiplier`."""
        left, right = torch.rand(product.m, product.k), torch.rand(product.k, product.n)
        out = torch.empty(product.m, product.n)
        return lambda: torch.mm(left, right, out=out)


class NumpyMultiplier:
    """NumPy, which has OpenBLAS do it."""

    def ready(self, product: Product) -> Callable[[], object]:
        """See :class:`Multiplier`."""
        left, right = matrices(product)
        out = np.empty((product.m, product.n), dtype=np.float32)
        return lambda: np.matmul(left, right, out=out)


class OnnxRuntimeMultiplier:
    """onnxruntime, one matrix being weights, which it may arrange as it likes beforehand."""

    def __init__(self, threads: int) -> None:
        """Take a number of threads."""
        self.threads = threads

    def ready(self, product: Product) -> Callable[[], object]:
        """See :class:`Multiplier`."""
        left, right = matrices(product)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        # Each product has threads of its own, which would spin on into the next one's time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(
            product_graph(product, right).SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
        )
        binding: Any = session.io_binding()
        binding.bind_cpu_input("left", left)
        out = np.empty((product.m, product.n), dtype=np.float32)
        binding.bind_output("out", "cpu", 0, np.float32, out.shape, out.ctypes.data)

        def multiply(keep: tuple[object, ...] = (left, out)) -> None:
            session.run_with_iobinding(binding)

        return multiply


def product_graph(product: Product, weights: NDArray[np.float32]) -> onnx.ModelProto:
    """A graph of one product."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["left", "right"], ["out"])],
        "product",
        [helper.make_tensor_value_info("left", TensorProto.FLOAT, [product.m, product.k])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [product.m, product.n])],
        [numpy_helper.from_array(weights, "right")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def matrices(product: Product) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Random ones to multiply."""
    random = np.random.default_rng(0)
    return (
        random.random((product.m, product.k), dtype=np.float32),
        random.random((product.k, product.n), dtype=np.float32),
    )


class Library:
    """One library at all products."""

    def __init__(self, name: str, every: Sequence[Product], threads: int) -> None:
        """Make matrices.

        Args:
            name: of the library.
            every: products to compute.
            threads: of one product; NumPy uses all cores, or what the environment says.
        """
        self.threads = threads
        multipliers: dict[str, Multiplier] = {
            TORCH: TorchMultiplier(),
            NUMPY: NumpyMultiplier(),
            ONNXRUNTIME: OnnxRuntimeMultiplier(threads),
        }
        multiplier = multipliers[name]
        self.every = [(product, multiplier.ready(product)) for product in every]

    def gflops(self) -> list[float]:
        """1e9 operations a second of each product."""
        # By the thread that multiplies: some of what torch has compute goes by a setting of it.
        torch.set_num_threads(self.threads)
        return [self.rate(product, multiply) for product, multiply in self.every]

    def rate(self, product: Product, multiply: Callable[[], object]) -> float:
        """1e9 operations a second of one product; where it is quick, after one that does not count."""
        times = max(round(OPERATIONS / product.flops), 1)
        if times > 1:
            multiply()
        started = time.perf_counter()
        for _ in range(times):
            multiply()
        return product.flops * times / (time.perf_counter() - started) / 1e9
