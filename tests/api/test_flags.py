"""The flags and variables refused at apply are those that the renderer owns, in all their spellings."""

from shardwright.api.flags import OWNED_ENV, OWNED_FLAGS
from shardwright.catalog import flags
from shardwright.catalog.flag_table import FLAGS_0_32
from shardwright.render import environment

REFUSED = [flag for owned in OWNED_FLAGS for flag in owned.flags]
OPTIONS = [line.split(";")[1].split() for line in FLAGS_0_32.splitlines()]


def test_whatever_the_renderer_owns_is_refused_when_the_object_is_applied_and_nothing_else():
    owned = set(flags.OWNED) | set(flags.SECRET)
    expected = {option for options in OPTIONS if owned & set(options) for option in options}
    assert len(set(REFUSED)) == len(REFUSED)
    assert sorted(REFUSED) == sorted(expected)


def test_so_are_the_variables():
    # The pod's address for groups that span nodes: nothing renders it yet, and it is never the user's.
    assert set(OWNED_ENV) == set(environment.OWNED_ENV) | {"VLLM_HOST_IP"}
