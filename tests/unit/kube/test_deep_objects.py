"""An object that is nested deeper than a decoder reads keeps no other from being read."""

from slicebus.kube.client import _manifest, _watch_event
from slicebus.kube.lists import MOST_LEVELS, decode_list, decoded, without_depths


def an_object(levels: int) -> bytes:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"metadata":{"name":"x","resourceVersion":"7"},"spec":{"open":' + deep + b',"replicas":3}}'


def test_it_is_read_without_its_depths() -> None:
    for levels in (5, 300, 2000, 9000):
        page = decoded(
            decode_list, b'{"metadata":{"resourceVersion":"8"},"items":[%s,{"metadata":{}}]}' % an_object(levels)
        ).page({}, lambda item: item)
        [deep, other], event = page.items, _watch_event(b'{"type":"ADDED","object":%s}' % an_object(levels))
        assert other == {"metadata": {}}
        for read in (deep, event.object, decoded(_manifest, an_object(levels))):
            assert read["metadata"]["resourceVersion"] == "7"
            assert read["spec"]["replicas"] == 3


def test_brackets_in_texts_are_no_levels() -> None:
    assert without_depths(b'{"a":[{"b":"}]{\\""},1,[2,[3]],"x"]}', 2) == b'{"a":[null,1,null,"x"]}'
    assert without_depths(b'{"a":"]"}', MOST_LEVELS) == b'{"a":"]"}'
