import pytest
import torch

from capsules.backbones.device import resolve_device, resolve_dtype
from capsules.errors import OptionError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=[0, 2], ids=["no-cuda", "two-gpus"])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many CUDA devices PyTorch says there are."""
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return count


def test_auto_takes_cuda_where_there_is_one(gpus: int) -> None:
    assert resolve_device("auto") == (CUDA if gpus else CPU)


def test_cpu_is_always_there(gpus: int) -> None:
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:99"])
def test_cuda_devices_that_there_are(gpus: int, device: str) -> None:
    index = int(device.partition(":")[2] or 0)
    if index < gpus:
        assert resolve_device(device) == torch.device(device)
        return
    with pytest.raises(OptionError) as refused:
        resolve_device(device)
    assert (refused.value.code, refused.value.field) == ("invalid_option", "device")
    wanted = f"has {gpus} CUDA device(s)" if gpus else "choose cpu or auto"
    assert wanted in refused.value.message


@pytest.mark.parametrize(
    "device", ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "mps", "cuda 0"]
)
def test_other_devices_are_not_known(gpus: int, device: str) -> None:
    with pytest.raises(OptionError, match="choose auto, cpu, cuda or cuda:N") as refused:
        resolve_device(device)
    assert refused.value.field == "device"


@pytest.mark.parametrize("supported", [True, False])
def test_auto_takes_bfloat16_on_devices_that_have_it(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("auto", CUDA) == (torch.bfloat16 if supported else torch.float32)


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_dtypes_by_name(device: torch.device) -> None:
    assert resolve_dtype("float32", device) == torch.float32
    assert resolve_dtype("bfloat16", device) == torch.bfloat16


def test_float16_needs_a_gpu() -> None:
    assert resolve_dtype("float16", CUDA) == torch.float16
    with pytest.raises(OptionError, match="choose float32 or bfloat16") as refused:
        resolve_dtype("float16", CPU)
    assert refused.value.field == "dtype"


@pytest.mark.parametrize("dtype", ["", "fp32", "float64", "torch.float32", "Float32", "int8"])
def test_other_dtypes_are_not_known(dtype: str) -> None:
    with pytest.raises(OptionError, match="choose auto, float32, bfloat16 or float16") as refused:
        resolve_dtype(dtype, CPU)
    assert refused.value.field == "dtype"
