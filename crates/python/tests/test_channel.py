"""The order in which a channel posts sends and receives, and what it keeps."""

import weakref

import torch

from gradwire.torch._channel import Channel


class Group:
    """A process group of two ranks that notes what is posted."""

    def __init__(self):
        self.posted, self.tensors = [], []

    def rank(self):
        return 0

    def size(self):
        return 2

    def send(self, tensors, peer, tag):
        return self._note("send", tensors[0])

    def recv(self, tensors, peer, tag):
        return self._note("receive", tensors[0])

    def _note(self, what, tensor):
        self.posted.append((what, tensor.numel()))
        self.tensors.append(tensor)
        return Work(self)


class Work:
    def __init__(self, group):
        self.group = group

    def wait(self, time):
        self.group.posted.append(("wait", time.total_seconds()))


def channel_of(group):
    channel = Channel((group, group))
    channel.part = 8
    return channel


def exchange(channel):
    """Sends a message of two parts, and receives one of one part."""
    channel.prepare([1], 1, 5.0)
    channel.outgoing([1], 12)
    channel.send(1)
    channel.receive(1, False, 2.0)


def test_a_receive_is_posted_before_a_message_is_sent_to_a_rank_that_has_sent_before():
    group = Group()
    channel = channel_of(group)
    exchange(channel)
    assert group.posted == [("send", 8), ("send", 4), ("receive", 8), ("wait", 2.0)]
    for _ in range(2):
        group.posted.clear()
        exchange(channel)
        # The last message was waited for between.
        left = [("wait", 5.0)] * 2
        assert group.posted == [("receive", 8), *left, ("send", 8), ("send", 4), ("wait", 2.0)]


def test_while_a_part_is_read_the_next_ones_have_other_memory():
    group = Group()
    channel = channel_of(group)
    addresses = [channel.receive(1, more, 2.0) for more in (False, True, True, False)]
    assert [what for what, _ in group.posted] == ["receive", "wait", "receive", "receive", "wait", "receive", "wait", "wait"]
    assert addresses[1] != addresses[2] != addresses[3]


def test_lent_bytes_are_sent_from_their_place():
    group = Group()
    channel = channel_of(group)
    memory = torch.arange(20, dtype=torch.uint8)
    channel.prepare([1], 1, 5.0)
    channel.outgoing([1], 8)
    channel.lend(memory.data_ptr(), 20)
    channel.send(1)
    assert group.posted == [("send", 8), ("send", 8), ("send", 8), ("send", 4)]
    assert [part.data_ptr() - memory.data_ptr() for part in group.tensors[1:]] == [0, 8, 16]
    assert [part.tolist() for part in group.tensors[1:]] == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    group.posted.clear()
    channel.flush(1, 3.0)
    # One time limit for all parts.
    assert [kind for kind, _ in group.posted] == ["wait"] * 4 and all(2 < seconds <= 3 for _, seconds in group.posted)


def test_a_closed_channel_lets_its_groups_go():
    group = Group()
    channel, gone = channel_of(group), weakref.ref(group)
    exchange(channel)
    channel.prepare([1], 1, 5.0)
    channel.close()
    del group
    assert gone() is None
