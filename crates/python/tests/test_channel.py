"""The order in which a channel posts sends and receives."""

from gradwire.torch._channel import Channel


class Group:
    """A process group of two ranks that notes what is posted."""

    def __init__(self):
        self.posted = []

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
        return self

    def wait(self, time):
        self.posted.append(("wait", time.total_seconds()))


def test_a_receive_is_posted_before_a_message_to_the_same_rank_is_sent():
    group = Group()
    channel = Channel((group, group))
    channel.part = 8
    for turn in range(2):
        channel.outgoing([1], 12)
        channel.send(1)
        channel.receive(1, False, 2.0)
        assert group.posted == [("receive", 8), ("send", 8), ("send", 4), ("wait", 2.0)], turn
        group.posted.clear()


def test_while_a_part_is_read_the_next_ones_have_other_memory():
    group = Group()
    channel = Channel((group, group))
    channel.part = 8
    addresses = [channel.receive(1, more, 2.0) for more in (False, True, True, False)]
    assert [what for what, _ in group.posted] == ["receive", "wait", "receive", "receive", "wait", "receive", "wait", "wait"]
    assert addresses[0] != addresses[1] != addresses[2] != addresses[3]
