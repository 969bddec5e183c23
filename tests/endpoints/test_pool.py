"""The pure part: who is wanted, and what differs. Missing data never means that nobody is."""

from hypothesis import given
from hypothesis import strategies as st

from shardwright.endpoints.pool import Slices, difference, is_filled, read_slice

URLS = st.frozensets(st.integers(1, 9).map(lambda n: f"http://10.0.0.{n}:8000"))


def a_slice(name, version, addresses, port=8000, **conditions):
    said = {"ready": True, "serving": True, "terminating": False} | conditions
    return {
        "metadata": {"namespace": "team", "name": name, "resourceVersion": str(version)},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": said} for address in addresses],
        "ports": [{"name": "http", "port": port}],
    }


@given(URLS, URLS)
def test_the_difference_makes_the_list_what_is_wanted_and_touches_nobody_else(wanted, listed):
    change = difference(wanted, listed)
    assert (set(listed) - set(change.remove)) | set(change.add) == wanted
    assert not set(change.remove) & wanted
    assert not set(change.add) & listed
    assert difference(wanted, wanted) == ((), ())


def test_who_is_not_ready_or_is_leaving_is_not_served():
    assert read_slice(a_slice("a", 1, ["10.0.0.1"])).urls == {"http://10.0.0.1:8000"}
    assert not read_slice(a_slice("a", 1, ["10.0.0.1"], ready=False)).urls
    # A pod that ends is `serving` for as long as its probe holds, and must get nothing new.
    assert not read_slice(a_slice("a", 1, ["10.0.0.1"], ready=False, terminating=True)).urls
    assert not read_slice(a_slice("a", 1, ["10.0.0.1"], ready=True, terminating=True)).urls
    assert read_slice(a_slice("a", 1, ["fd00::1"])).urls == {"http://[fd00::1]:8000"}
    # The API says that an absent `ready` is to be read as true.
    bare = a_slice("a", 1, ["10.0.0.1"])
    del bare["endpoints"][0]["conditions"]
    assert read_slice(bare).urls == {"http://10.0.0.1:8000"}


def test_a_slice_without_our_port_or_without_endpoints_serves_nobody():
    assert not read_slice(a_slice("a", 1, [])).urls
    empty = a_slice("a", 1, ["10.0.0.1"])
    empty["ports"] = None
    assert not read_slice(empty).urls
    empty = a_slice("a", 1, [])
    empty["endpoints"] = None
    assert not read_slice(empty).urls


def test_without_any_slice_nothing_is_known():
    slices = Slices()
    assert slices.wanted() is None
    slices.listed([], "5")
    assert slices.wanted() is None
    slices.listed([a_slice("a", 6, [])], "6")
    assert slices.wanted() == frozenset()
    slices.listed([], "7")
    assert slices.wanted() is None


def test_news_are_told_and_repetition_is_not():
    told = []
    slices = Slices(lambda: told.append(1))
    slices.upsert(a_slice("a", 1, ["10.0.0.1"]))
    slices.upsert(a_slice("a", 2, ["10.0.0.1"]))
    assert len(told) == 1
    slices.upsert(a_slice("a", 3, []))
    assert len(told) == 2


def test_a_late_event_brings_nobody_back():
    slices = Slices()
    slices.upsert(a_slice("a", 1, ["10.0.0.1"]))
    slices.upsert(a_slice("b", 2, ["10.0.0.2"]))
    slices.listed([a_slice("a", 8, ["10.0.0.3"])], "9")
    # What a watch that was silent tells now is older than the list.
    slices.upsert(a_slice("a", 4, ["10.0.0.1"]))
    slices.upsert(a_slice("b", 5, ["10.0.0.2"]))
    slices.remove(("team", "a"), "7")
    assert slices.wanted() == {"http://10.0.0.3:8000"}
    slices.remove(("team", "a"), "10")
    assert slices.wanted() is None


def test_a_list_of_an_older_history_counts():
    """The API server's store was put back from a copy: versions begin again below."""
    slices = Slices()
    slices.listed([a_slice("a", 900, ["10.0.0.1"])], "1000")
    slices.listed([a_slice("a", 20, ["10.0.0.2"])], "30")
    assert slices.wanted() == {"http://10.0.0.2:8000"}


@given(st.lists(st.tuples(st.sampled_from("ab"), URLS), min_size=1, max_size=12), st.data())
def test_in_whatever_order_it_is_told_the_last_state_holds(states, data):
    """Events of a watch and lists beside it, each state told at least once by a list at the end."""
    history = [(name, version, urls) for version, (name, urls) in enumerate(states, start=1)]
    last = {name: (version, urls) for name, version, urls in history}
    slices = Slices()
    for name, version, urls in data.draw(st.permutations(history)):
        slices.upsert(a_slice(name, version, [u[7:-5] for u in urls]))
    wanted = frozenset().union(*(urls for _, urls in last.values()))
    assert slices.wanted() == wanted
    slices.listed(
        [a_slice(n, v, [u[7:-5] for u in urls]) for n, (v, urls) in last.items()], str(len(history))
    )
    assert slices.wanted() == wanted


@given(URLS, URLS, st.booleans())
def test_a_router_is_filled_when_it_can_serve_or_has_nobody_to_serve(wanted, listed, before):
    assert is_filled(wanted, listed, before=before) == (not wanted or bool(wanted & listed))
    # Not known: what was filled stays so, and a list that holds somebody was filled by an earlier run.
    assert is_filled(None, listed, before=before) == (before or bool(listed))
