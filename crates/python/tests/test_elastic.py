"""Tests local steps among workers that are killed, stopped, lost for a moment, and added."""

import os
import random
import signal
import time

import pytest
import torch
from torch import nn

pytest.importorskip("torchft", reason="install torchft to test workers that come and go")

import gradwire.torch  # noqa: E402
from elastic import EVERY, lighthouse, local_steps, task, train, workers  # noqa: E402
from gradwire.torch._membership import Record, admitted, reference  # noqa: E402
from models import exchange_bytes  # noqa: E402
from world import PATIENCE  # noqa: E402

# The moments at which a worker is killed; the guide's statement was checked with 100.
KILLS = int(os.environ.get("GRADWIRE_KILLS", "3"))
SEEDS = 8 if KILLS >= 20 else 3
WORKERS, LEAST = 4, 2
ROUNDS = 30 + 5 * KILLS
PAUSE = 0.004


def agree(ended):
    """Checks that all workers had the same parameters after every round; returns the number of
    rounds."""
    digests = {}
    for worker in ended:
        for number, found, _ in worker.lines("round"):
            assert digests.setdefault(int(number), found) == found, f"replicas differ after round {number}"
    return max(digests)


def undisturbed(count, rounds, seed):
    """The loss of a run in which nobody is lost."""
    with lighthouse(LEAST) as address, workers() as start:
        started = [start(train, address, shard, rounds, seed, 0.0) for shard in range(count)]
        for worker in started:
            worker.finish()
        assert agree(started) == rounds
        return float(started[0].lines("loss")[0][0])


class Chaos:
    """Kills workers at random moments, and starts a new one for each."""

    def __init__(self, start, address, seed):
        self.start, self.address, self.random = start, address, random.Random(seed)
        self.all, self.running = [], {}
        self.killed = {"rounds": 0, "meetings": 0, "joins": 0}

    def add(self, shard):
        self.running[shard] = self.start(train, self.address, shard, ROUNDS, 0, PAUSE, 60.0, True)
        self.all.append(self.running[shard])

    def reached(self):
        return max((int(rounds[-1][0]) for rounds in (worker.lines("round") for worker in self.all) if rounds), default=0)

    def wait_for(self, round_):
        self.wait_until(lambda: self.reached() >= round_, f"round {round_}")

    def wait_until(self, done, what, seconds=PATIENCE):
        until = time.monotonic() + seconds
        while not done():
            stuck = time.monotonic() > until or not all(worker.alive for worker in self.running.values())
            assert not stuck, "\n\n".join([f"no {what} after round {self.reached()}", *(one.text() for one in self.running.values())])
            time.sleep(0.01)

    def members(self):
        """The shards of the running workers that have parameters of the run."""
        return [shard for shard, worker in self.running.items() if worker.lines("round")]

    def kill(self, shard, moment):
        self.running.pop(shard).send(signal.SIGKILL)
        self.killed[moment] += 1

    def strike(self):
        """One or two kills, and the start of as many workers."""
        time.sleep(self.random.uniform(0, 0.15))
        members = self.members()
        if len(members) <= LEAST:
            self.wait_for(self.reached() + 1)
            return
        lost = [self.random.choice(members)]
        self.kill(lost[0], "rounds")
        choice = self.random.random()
        if choice < 0.25 and len(self.members()) > LEAST:
            # The survivors are about to meet, or meeting.
            time.sleep(self.random.uniform(0, 2.0))
            lost.append(self.random.choice(self.members()))
            self.kill(lost[1], "meetings")
        time.sleep(self.random.uniform(0, 0.5))
        for shard in lost:
            self.add(shard)
        if 0.25 <= choice < 0.4:
            # The new worker waits, connects, or receives the state.
            time.sleep(self.random.uniform(0, 2.5))
            if self.running[lost[0]].alive and len(self.members()) - (lost[0] in self.members()) >= LEAST:
                self.kill(lost[0], "joins")
                self.add(lost[0])


def test_killed_workers_are_replaced_and_training_goes_on():
    with lighthouse(LEAST) as address, workers() as start:
        chaos = Chaos(start, address, seed=KILLS)
        for shard in range(WORKERS):
            chaos.add(shard)
        while sum(chaos.killed.values()) < KILLS:
            chaos.wait_for(10 + 5 * sum(chaos.killed.values()))
            chaos.strike()
        chaos.wait_until(lambda: all(worker.lines("stats") for worker in chaos.running.values()), "loss of all workers")
        agree(chaos.all)
        losses = [worker.lines("loss")[0] for worker in chaos.running.values()]
        # A worker that joined after these rounds evaluated later parameters.
        found = {float(loss) for loss, rounds in losses if int(rounds) == ROUNDS}
        assert len(found) == 1, f"losses after round {ROUNDS}: {losses}"
        (loss,) = found
        stats = [worker.lines("stats")[0] for worker in chaos.running.values()]
    calm = [undisturbed(WORKERS, ROUNDS, seed) for seed in range(SEEDS)]
    fewest = undisturbed(LEAST, ROUNDS, 0)
    print(f"kills {chaos.killed}, rounds {ROUNDS}, loss {loss:.4f}, lost and joined {stats}")
    print(f"undisturbed: {WORKERS} workers {[round(one, 4) for one in calm]}, {LEAST} workers {fewest:.4f}")
    # During the run there were between LEAST and WORKERS workers, and a worker whose round was lost
    # kept its local steps for the next one. A few seeds underestimate the spread.
    low, high = min(*calm, fewest), max(*calm, fewest)
    room = 2 * (high - low)
    assert low - room <= loss <= high + room


class Faulty:
    """A reducer that sometimes takes the other workers for lost after all of them have told that
    they have the result."""

    def __init__(self, reducer, draw):
        self._reducer, self._draw = reducer, draw

    def gather(self, step, own):
        told = self._reducer.gather(step, own)
        if self._draw.random() < 0.15:
            raise gradwire.PeerLostError("this worker alone does not know that the round counts")
        return told

    def __getattr__(self, name):
        return getattr(self._reducer, name)


def break_groups(replica, draw):
    connect, average = replica.connect, replica.average

    def faulty_connect(channel):
        connect(channel)
        replica.reducer = Faulty(replica.reducer, draw)

    def faulty_average(change):
        choice = draw.random()
        if choice < 0.1:
            raise gradwire.PeerLostError("before the exchange")
        number = average(change)
        if choice > 0.9:
            raise gradwire.PeerLostError("after the exchange, before this worker tells that it has the result")
        return number

    replica.average, replica.connect = faulty_average, faulty_connect


def pushed(log, address, shard, path):
    """Steps along its own direction while groups break, then drains its residual; saves what it has
    and what it pushed."""
    torch.manual_seed(0)
    layer = nn.Linear(32, 32, bias=False)
    start = layer.weight.detach().clone()
    inner = torch.optim.SGD(layer.parameters(), lr=1.0)
    steps = gradwire.torch.LocalSteps(
        layer, inner, every=2, compressor="topk:ratio=0.3", lighthouse=address, min_workers=3, deadline=30.0
    )
    break_groups(steps._replica, random.Random(shard))
    direction = 0.01 * torch.randn(32, 32, generator=torch.Generator().manual_seed(shard))
    moved = torch.zeros(32, 32)
    while steps.completed_steps < 44:
        pushing = steps.completed_steps < 30
        layer.weight.grad = direction.clone() if pushing else torch.zeros(32, 32)
        moved -= pushing * direction
        steps.step()
    torch.save({"moved": moved, "change": steps._replica.common.view(32, 32) - start}, path)
    log("groups", steps._elastic._groups)


def test_no_contribution_is_lost_or_sent_twice_when_groups_break(tmp_path):
    paths = [tmp_path / str(shard) for shard in range(3)]
    with lighthouse(3) as address, workers() as start:
        started = [start(pushed, address, shard, path) for shard, path in enumerate(paths)]
        for worker in started:
            worker.finish()
        # Otherwise the faults were not injected.
        assert int(started[0].lines("groups")[0][0]) > 5
    found = [torch.load(path) for path in paths]
    expected = sum(one["moved"] for one in found) / 3
    for one in found:
        # One contribution more or less of one worker would be 0.005 on average.
        torch.testing.assert_close(one["change"], expected, rtol=0, atol=1e-5)


def test_a_worker_that_was_wrongly_given_up_returns():
    with lighthouse(LEAST, heartbeat_seconds=1.0) as address, workers() as start:
        started = [start(train, address, shard, 70, 0, 0.0, 3.0) for shard in range(3)]
        stopped = started[0]
        _wait_for_round(stopped, 5)
        stopped.send(signal.SIGSTOP)
        _wait_for_round(started[1], int(stopped.lines("round")[-1][0]) + 8)
        stopped.send(signal.SIGCONT)
        for worker in started:
            worker.finish()
        assert agree(started) == 70
        assert int(stopped.lines("round")[-1][2]) == 3
        assert int(started[1].lines("stats")[0][0]) >= 1


def _wait_for_round(worker, round_, seconds=PATIENCE):
    until = time.monotonic() + seconds
    while not any(int(line[0]) >= round_ for line in worker.lines("round")):
        assert time.monotonic() < until, f"no round {round_} within {seconds} s: {worker.text()}"
        time.sleep(0.01)


def saving(log, address, path):
    """Trains for four rounds, saves its state after the third and the fourth, and is gone."""
    net, steps = local_steps(address)
    for step in range(4 * EVERY):
        x, labels = task(1, step)
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
        if steps.completed_steps == 3 * EVERY:
            torch.save(steps.state_dict(), f"{path}.early")
    torch.save(steps.state_dict(), path)


def returning(log, address, path):
    """Joins with the states of the worker that is gone."""
    net, steps = local_steps(address)
    assert steps.completed_steps > 0
    # As Accelerate does when it wraps an optimizer.
    steps.load_state_dict(steps.state_dict())
    for name in (f"{path}.early", path, path):
        state = torch.load(name)
        saved = exchange_bytes(state)
        try:
            steps.load_state_dict(state)
            # The residuals are the end of a state; its beginning names ranks.
            log("taken", steps._replica.reducer.save()[-4000:] == saved[-4000:], any(saved[-4000:]))
        except gradwire.StateError as error:
            log("refused", error)


def half(log, address, shard, folder, resume):
    """Trains for two rounds and saves the state of this worker, or loads those of both and logs
    what this worker takes over."""
    net, steps = local_steps(address)
    if resume:
        steps.load_state_dict([torch.load(f"{folder}/{one}") for one in range(2)])
        log("loaded", steps.completed_steps, steps._replica.reducer.save()[-4000:].hex(), momentum(steps))
        return
    while steps.completed_steps < 2 * EVERY:
        x, labels = task(shard, steps.completed_steps)
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    with pytest.raises(gradwire.ConfigError, match="save each worker's state in its own file"):
        steps.state_dict(all_ranks=True)
    torch.save(steps.state_dict(), f"{folder}/{shard}")
    log("saved", steps._replica.reducer.save()[-4000:].hex(), momentum(steps))


def momentum(steps):
    """A number that tells the momenta of workers apart."""
    return sum(one["momentum_buffer"].double().sum().item() for one in steps.state.values())


def test_a_whole_run_resumes_from_the_states_of_its_workers(tmp_path):
    found = []
    for resume in (False, True):
        with lighthouse(LEAST) as address, workers() as start:
            started = [start(half, address, shard, tmp_path, resume) for shard in range(2)]
            for worker in started:
                worker.finish()
            found.append([worker.lines("loaded" if resume else "saved")[0] for worker in started])
    saved, loaded = found
    # Residuals with the momentum. The residuals are the end of a state. Either worker may be the
    # first of the new run.
    assert sorted(line[1:] for line in loaded) == sorted(saved)
    assert [line[0] for line in loaded] == [str(2 * EVERY)] * 2


def other(log, address, options):
    try:
        local_steps(address, **options)
        log("nothing was refused")
    except gradwire.GradwireError as error:
        log(type(error).__name__, error)


def test_a_residual_returns_only_with_the_last_state_of_a_lost_worker(tmp_path):
    path = str(tmp_path / "state")
    with lighthouse(LEAST) as address, workers() as start:
        gone = start(saving, address, path)
        started = [start(train, address, shard, 30, 0, 0.01) for shard in range(2, 4)]
        gone.finish()
        found = start(returning, address, path)
        found.finish()
        # The second time it would be sent twice.
        assert [line[:2] for line in found.lines("taken")] == [["True", "True"]]
        assert len(found.lines("refused")) == 2
        for worker in started:
            worker.finish()


def test_a_worker_with_other_arguments_is_refused_and_the_others_go_on():
    with lighthouse(LEAST) as address, workers() as start:
        started = [start(train, address, shard, 40, 0, 0.01) for shard in range(2)]
        _wait_for_round(started[0], 2)
        found = [start(other, address, {"compressor": "topk"}), start(other, address, {"min_workers": 1})]
        for worker in found:
            worker.finish()
            assert worker.lines("ConfigError"), worker.text()
        for worker in started:
            worker.finish()
        assert agree(started) == 40


def test_a_worker_that_stays_alone_ends_with_an_error():
    with lighthouse(LEAST) as address, workers() as start:
        worker = start(other, address, {"deadline": 1.0})
        worker.finish()
        assert worker.lines("DeadlineError"), worker.text()


def test_what_cannot_work_is_refused():
    for options, says in [
        ({"min_workers": 2}, "needs lighthouse"),
        ({"lighthouse": "http://127.0.0.1:1"}, "torchft_lighthouse"),
        ({"lighthouse": "nowhere"}, "torchft_lighthouse"),
        ({"lighthouse": "http://127.0.0.1:1", "exchange": "all-reduce"}, "all-gather"),
        ({"lighthouse": "http://127.0.0.1:1", "min_workers": 0}, "at least 1 worker"),
        ({"lighthouse": "http://127.0.0.1:1", "fragment_update_alpha": 0.5}, "fragment_update_alpha"),
    ]:
        layer = nn.Linear(4, 4)
        with pytest.raises(gradwire.ConfigError, match=says):
            gradwire.torch.LocalSteps(layer, torch.optim.SGD(layer.parameters(), lr=0.1), **options)


def test_rule_of_a_meeting():
    """Worked out by hand: group g made rounds 0 to 2; in round 3 a worker was lost."""
    past = {"config": "c", "run": "g", "groups": 1, "history": [("g", 0)]}
    sent = Record(**past, rounds=3, attempt=("g", 3))
    has_it = Record(**past, rounds=4, attempt=("g", 3), applied=True)
    new = Record(config="c")
    # Nobody has applied the round: those that sent repeat it, a new worker waits until then.
    assert admitted([new, sent, sent], 2) == [1, 2]
    assert sent.repeats(sent)
    # With too few survivors the new worker is needed.
    assert admitted([new, sent], 2) == [0, 1]
    # Somebody has: its parameters contain all messages of the round.
    assert reference([sent, has_it]) == 1 and has_it.contains(sent.attempt) and not sent.repeats(has_it)
    # The others have repeated the round without the worker that had applied it: its message does
    # not count.
    later = Record(config="c", run="g", groups=2, rounds=4, history=[("g", 0), ("h", 3)])
    assert reference([has_it, later]) == 1 and not later.contains(has_it.attempt)
    assert later.contains(("g", 2)) and not has_it.has_parameters_of(later)
    # Of two separate runs the one with more rounds goes on; a worker with another configuration is
    # not admitted.
    shorter = Record(config="c", run="x", groups=9, rounds=1, history=[("x", 0)])
    assert reference([shorter, sent]) == 1
    assert admitted([Record(config="d"), sent, sent], 1) == [1, 2]
