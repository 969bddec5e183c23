"""GPU products: names, visible memory, refusals."""

import pytest

from shardwright.catalog.engines import default_batch, engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import (
    find_product,
    load_products,
    parse_products,
    unknown_product_message,
    visible_gib,
)

ROW = {
    "label": "NVIDIA-X1", "short_name": "X1", "aliases": ["X1-80GB"], "vendor": "nvidia", "family": "x",
    "compute_capability": [9, 0], "memory_mib": 81559, "visible_gib": 79.19, "interconnect": "nvswitch",
    "island_gpus": 8, "link_gbytes_s": 450, "pcie_gbytes_s": 64, "memory_gbytes_s": 3350, "verified": True,
    "source": "a test",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("H100", "NVIDIA-H100-80GB-HBM3"),
        ("H100-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("h200", "NVIDIA-H200"),
        ("A100-40GB", "NVIDIA-A100-SXM4-40GB"),
        ("A100-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("RTX 4090", "NVIDIA-GeForce-RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA-GeForce-RTX-3090"),
        ("RTX-A6000", "NVIDIA-RTX-A6000"),
        ("MI300X", "AMD_Instinct_MI300X_OAM"),
        ("V100-32GB (inferred)", "Tesla-V100-SXM2-32GB"),
        ("T4 (14.56 GiB visible)", "Tesla-T4"),
        ("L4", "NVIDIA-L4"),
        ("A100 (40 GB)", "NVIDIA-A100-SXM4-40GB"),
        ("A100 80 GB", "NVIDIA-A100-SXM4-80GB"),
        ("V100 (16 GB)", "Tesla-V100-SXM2-16GB"),
        ("H100 94GB", "NVIDIA-H100-NVL"),
        ("RTX 3090 24GB", "NVIDIA-GeForce-RTX-3090"),
        ("B200 (192 GB)", "NVIDIA-B200"),
        ("NVIDIA-GH200-480GB", "NVIDIA-GH200-480GB"),
        ("A10", "NVIDIA-A10"),
        ("A10G", "NVIDIA-A10G"),
    ],
)
def test_names_mean_the_product(name, label):
    product = find_product(name)
    assert product is not None
    assert product.label == label


def test_all_products_are_known_by_label_and_short_name():
    products = {product.label: product for product in load_products().values()}
    assert len(products) == 40
    assert all(find_product(product.short_name) is product for product in products.values())
    assert all(product.source for product in products.values())


@pytest.mark.parametrize(
    "name",
    [
        "A100", "V100", "RTX 4090 (48 GB)", "H100 (40 GB)", "GB10 (DGX Spark, unified memory)",
        "80 GB class, 79.14 GiB visible",
    ],
)  # fmt: skip
def test_a_name_of_several_or_other_sizes_is_no_product(name):
    assert find_product(name) is None


def test_unknown_gpu_names_the_nearest():
    assert find_product("H1000") is None
    assert "H100" in unknown_product_message("H1000")


def test_visible_memory_is_below_the_label_and_never_raised_by_it():
    for product in load_products().values():
        assert 0 < product.memory_mib / 1024 - visible_gib(product) < 1.0
        assert visible_gib(product, product.memory_mib + 4096) == visible_gib(product)
        assert visible_gib(product, product.memory_mib // 2) < visible_gib(product)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"memory_mib": 0}, "memory_mib"),
        ({"vendor": "intel"}, "vendor"),
        ({"interconnect": "magic"}, "interconnect"),
        ({"compute_capability": [9]}, "compute_capability"),
        ({"visible_gib": 200}, "visible_gib"),
        ({"label": None}, "label"),
        ({"aliases": "X"}, "aliases"),
        ({"bf16_tflops": 0}, "bf16_tflops"),
        ({"bf16_tflops": 100, "fp8_tflops": 50, "tflops_source": "x"}, "fp8_tflops"),
        ({"bf16_tflops": 100}, "tflops_source"),
        ({"price_per_gpu_hour": 2}, "price_source"),
        ({"pcie_generation": 1}, "pcie_generation"),
    ],
)
def test_wrong_row_is_refused(change, field):
    with pytest.raises(CatalogError) as refused:
        parse_products([{**ROW, **change}])
    assert refused.value.field == f"gpu_products.json[0].{field}"


def test_every_product_has_peaks_and_every_default_price_a_source():
    for product in load_products().values():
        assert product.bf16_tflops is not None
        assert product.pcie_generation is not None
        assert (product.price_per_gpu_hour is None) == (product.price_source == "")


def test_a_name_means_one_product():
    with pytest.raises(CatalogError, match="taken by NVIDIA-X1"):
        parse_products([ROW, {**ROW, "label": "NVIDIA-X2", "short_name": "X2"}])


@pytest.mark.parametrize(
    ("version", "name", "percent", "subtracts"),
    [
        ("0.8.5", "before 0.9 (old engine)", 90, False),
        ("0.10.1.1", "0.9-0.16", 90, False),
        ("v0.16.0", "0.9-0.16", 90, False),
        ("V0.20.0", "0.20-0.21", 90, True),
        ("0.19.1rc1", "0.17-0.19", 90, False),
        ("0.17.0", "0.17-0.19", 90, False),
        ("0.20.1", "0.20-0.21", 90, True),
        ("0.22", "0.22 and later", 92, True),
        ("0.33.0", "0.22 and later", 92, True),
        ("1.0.0", "0.22 and later", 92, True),
    ],
)
def test_version_classes(version, name, percent, subtracts):
    found = engine_class(version)
    assert found.name == name
    assert found.default_gpu_memory_utilization_percent == percent
    assert found.subtracts_cuda_graphs is subtracts
    assert found.source


def test_a_version_must_be_one():
    with pytest.raises(CatalogError, match="latest"):
        engine_class("latest")


@pytest.mark.parametrize(
    ("gpu", "version", "batch"),
    [
        ("H100", "0.19.0", (1024, 8192)),
        ("A100-80", "0.19.0", (256, 2048)),
        ("L40S", "0.19.0", (256, 2048)),
        ("B200", "0.27.1", (1024, 8192)),
        ("MI300X", "0.19.0", (1024, 8192)),
        ("B200", "0.28.0", (1024, 16384)),
        ("B200", "0.33.0", (1024, 16384)),
        ("MI300X", "0.33.0", (1024, 16384)),
        ("H100", "0.7.0", (256, 4096)),
    ],
)
def test_engine_defaults_by_device(gpu, version, batch):
    assert default_batch(engine_class(version), load_products()[gpu], 4096) == batch
