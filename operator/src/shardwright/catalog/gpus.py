"""The GPU products the operator knows.

Decides which names mean which product and how much of a card's memory vLLM sees. Never reads a node.
"""

import re
from difflib import get_close_matches
from functools import lru_cache

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, read_data, rows
from shardwright.catalog.types import GPUProduct, Interconnect

LABEL_TO_VISIBLE_GIB = 0.6
"""What the driver keeps of the labelled memory where no start-up log states it. Measured: 0.26 (V100-32) to
0.8 GiB (A100-80, T4) on eleven products, 0.46 on H100, 0.59 on H200."""
_NOISE = re.compile(r"\(.*?\)|nvidia|amd|tesla|geforce|instinct|[^a-z0-9]")
_SIZE = re.compile(r"(?<![\w.])([0-9]{1,6}(?:\.[0-9]{1,6})?)[ -]?gi?b\b")
_LONGEST_NAME = 128
"""Characters; a label has at most 63."""
SIZE_TOLERANCE = 0.12
"""A size in a name may be nominal, labelled or visible memory: of one card they differ by less than this, of
the variants of one product by far more."""


def load_products() -> dict[str, GPUProduct]:
    """Return products by label, short name and alias. Read once. Raises CatalogError naming row and field."""
    return dict(_catalogue())


def find_product(name: str) -> GPUProduct | None:
    """Return the product of a label, short name or spelling such as "RTX 4090"; None when unknown.

    A size in the name ("A100 (40 GB)") picks the variant; one that no variant has makes the name unknown.
    """
    if len(name) > _LONGEST_NAME:
        return None
    exact = _catalogue().get(name)
    if exact is not None:
        return exact
    size = _SIZE.search(name.lower())
    if size is None:
        return _normalised().get(_key(name))
    gib, bare = float(size[1]), _key(_SIZE.sub(" ", name.lower()))
    found = (_normalised().get(key) for key in (f"{bare}{gib:.0f}gb", _key(name), bare))
    return next((product for product in found if product is not None and _has(product, gib)), None)


def unknown_product_message(name: str) -> str:
    """Say what of a GPU that is not known, with the nearest names."""
    labels = sorted(_catalogue())
    shown = name[:_LONGEST_NAME]
    near = get_close_matches(shown, labels, n=3, cutoff=0.4)
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    return f"{shown!r} is not a known GPU product: use the value of the nvidia.com/gpu.product label{hint}"


def visible_gib(product: GPUProduct, memory_mib: int | None = None) -> float:
    """Return GiB that vLLM sees as total memory of a card whose label says `memory_mib`.

    The measured figure of the product where there is one; the label's memory less what the driver keeps
    otherwise. A label below the product's own lowers the figure by the difference, one above it never raises
    it.
    """
    base = product.visible_gib
    if base is None:
        base = product.memory_mib / 1024 - LABEL_TO_VISIBLE_GIB
    if memory_mib is None or memory_mib >= product.memory_mib:
        return base
    if memory_mib > 0.95 * product.memory_mib:  # the same card: the label varies with driver and ECC
        return min(base, memory_mib / 1024 - 0.1)
    return memory_mib / 1024 - LABEL_TO_VISIBLE_GIB


def _has(product: GPUProduct, gib: float) -> bool:
    return abs(product.memory_mib / 1024 - gib) <= SIZE_TOLERANCE * gib


def _key(name: str) -> str:
    return _NOISE.sub("", name.lower())


@lru_cache(maxsize=1)
def _normalised() -> dict[str, GPUProduct]:
    return {_key(name): product for name, product in reversed(_catalogue().items())}


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, GPUProduct]:
    return parse_products(read_data("gpu_products.json"))


def parse_products(data: object) -> dict[str, GPUProduct]:
    """Return products by every name, or raise CatalogError naming row and field."""
    found: dict[str, GPUProduct] = {}
    for index, item in enumerate(rows(data, "gpu_products.json")):
        product = _product(Fields(item, f"gpu_products.json[{index}]"))
        for name in dict.fromkeys((product.label, product.short_name, *product.aliases)):
            if name in found:
                raise CatalogError(
                    f"gpu_products.json[{index}]", f"the name {name!r} is taken by {found[name].label}"
                )
            found[name] = product
    return found


def _product(row: Fields) -> GPUProduct:
    vendor = row.text("vendor")
    if vendor not in {"nvidia", "amd"}:
        raise CatalogError(row.name("vendor"), f"must be nvidia or amd, not {vendor!r}")
    link = row.text("interconnect")
    if link not in set(Interconnect):
        raise CatalogError(
            row.name("interconnect"), f"must be one of {', '.join(Interconnect)}, not {link!r}"
        )
    memory_mib = row.integer("memory_mib", low=1024, high=1 << 24)
    visible = row.optional_number("visible_gib", low=1, high=memory_mib / 1024)
    bf16, fp8, fp4 = _peaks(row)
    price = row.optional_number("price_per_gpu_hour", high=1000)
    return GPUProduct(
        label=row.text("label"),
        vendor=vendor,
        family=row.text("family"),
        compute_capability=_capability(row),
        memory_mib=memory_mib,
        visible_gib=visible,
        interconnect=Interconnect(link),
        island_gpus=row.integer("island_gpus", high=1024),
        link_gbytes_s=row.optional_number("link_gbytes_s"),
        pcie_gbytes_s=row.optional_number("pcie_gbytes_s"),
        memory_gbytes_s=row.optional_number("memory_gbytes_s"),
        short_name=row.text("short_name"),
        verified=row.flag("verified", default=False),
        price_per_gpu_hour=price,
        price_source=row.text("price_source") if price is not None else "",
        bf16_tflops=bf16,
        fp8_tflops=fp8,
        fp4_tflops=fp4,
        pcie_generation=row.optional_integer("pcie_generation", low=3, high=7),
        aliases=row.texts("aliases"),
        source=row.text("source"),
    )


def _peaks(row: Fields) -> tuple[float | None, float | None, float | None]:
    """Return dense TFLOP/s in 16 bit, FP8 and FP4, each at least the wider format's."""
    found: list[float | None] = []
    floor = 1.0
    for key in ("bf16_tflops", "fp8_tflops", "fp4_tflops"):
        value = row.optional_number(key, low=floor, high=1e5)
        floor = value or floor
        found.append(value)
    if any(found):
        row.text("tflops_source")
    return found[0], found[1], found[2]


def _capability(row: Fields) -> tuple[int, int] | None:
    value = row.data.get("compute_capability")
    if value is None:
        return None
    numbers = rows(value, row.name("compute_capability"))
    if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
        raise CatalogError(row.name("compute_capability"), "must be two whole numbers, such as [9, 0]")
    return int(str(numbers[0])), int(str(numbers[1]))
