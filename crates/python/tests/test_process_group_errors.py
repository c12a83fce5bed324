"""Wrong uses of process groups that compress: each is an error that names the cause, or is passed
on, and nothing hangs."""

import os
import threading
import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch
from world import outcomes, ranks

wrap, gradients = gradwire.torch.wrap, gradwire.torch.gradients


def refusal(function, kind=gradwire.GradwireError):
    """The error of a call, as text."""
    try:
        function()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def summed(group, elements, async_op=False):
    with gradients():
        return dist.all_reduce(torch.ones(elements), group=group, async_op=async_op)


def misuses(rank, size):
    # A rank whose call is passed on waits for its group's own timeout.
    group = lambda seconds=60: dist.new_group(timeout=timedelta(seconds=seconds))
    found = {}
    first = group()
    name = first.group_name
    wrapped = wrap(first)
    assert first.group_name == name and wrapped.group_name == f"{name}/gradwire" and first.group_desc != wrapped.group_desc
    found["twice"] = [refusal(lambda: wrap(first)), refusal(lambda: wrap(wrapped))]
    found["settings"] = refusal(lambda: wrap(group(), "eden" if rank else "int8"))
    found["raw_below"] = refusal(lambda: wrap(group(), raw_below=100 * (rank + 1)))
    found["spelling"] = refusal(lambda: wrap(group(), "eden" if rank else "eden:bits=1"))
    summed(wrapped, 5000)
    state, loading = wrapped.state_dict(), wrap(group(), deadline=3.0)
    if rank == 0:
        loading.load_state_dict(state)
    found["loads"] = refusal(lambda: summed(loading, 5000))
    third = group()
    if rank == 0:
        found["alone"] = refusal(lambda: wrap(third, deadline=1.0))
    dist.barrier()
    other = wrap(group(), deadline=3.0)
    found["sizes"] = refusal(lambda: summed(other, 5000 + 1000 * rank))
    found["afterwards"] = refusal(lambda: summed(other, 5000))
    ordered = wrap(group(), deadline=3.0)
    for elements in (5000, 6000):
        summed(ordered, elements)
    # Both know both calls.
    ordered.step()
    found["order"] = refusal(lambda: summed(ordered, 5000 + 1000 * rank))
    passing = wrap(group(3), deadline=1.0)
    # Gradwire's errors are no RuntimeError, but gloo's is.
    found["passed on"] = refusal(lambda: summed(passing, 5000 if rank == 0 else 10), Exception)
    # The deadline is the timeout of the group.
    later = wrap(group(5))
    summed(later, 5000)
    found["passed on later"] = refusal(lambda: summed(later, 5000) if rank == 0 else dist.all_reduce(torch.ones(5000), group=later), Exception)
    threads = wrap(group())
    found["threads"] = of_two_threads(threads, rank, lambda: summed(threads, 5000))
    saving = wrap(group())
    saving.load_state_dict(state)
    found["saving"] = of_two_threads(saving, rank, lambda: saving.state_dict(all_ranks=True))
    aborted = wrap(under := group())
    summed(aborted, 5000)
    aborted.abort()
    found["aborted"] = refusal(lambda: summed(aborted, 5000))
    dist.all_reduce(torch.ones(5000), group=under)
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (5000,))
    with gradients():
        dist.all_reduce(sparse, group=threads)
    found["sparse"] = [site.reason for site in threads.describe().sites]
    work = summed(threads, 5000, async_op=True)
    dist.destroy_process_group(threads)
    found["destroyed"] = work.wait()
    found["ended"] = refusal(lambda: threads.allreduce([torch.ones(5000)]))
    unused = wrap(group())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(30):
            dist.all_reduce(torch.ones(5000), group=unused)
    found["outside"] = [str(one.message) for one in seen if "outside of a backward pass" in str(one.message)]
    return found


def of_two_threads(group, rank, call):
    """The error of a call while another thread of rank 0 connects to rank 1, which waits."""
    found = "no error"
    if rank == 0:
        other = threading.Thread(target=summed, args=(group, 5000))
        other.start()
        while not group._calls._busy.locked():
            time.sleep(0.01)
        found = refusal(call)
    dist.barrier()
    if rank == 1:
        summed(group, 5000)
    else:
        other.join()
    return found


def test_misuse_is_refused_or_passed_on():
    zero, one = ranks(2, misuses)
    for found in (zero, one):
        assert all("ConfigError" in text and "compresses already" in text for text in found["twice"]), found
        assert "compressor differs between ranks" in found["settings"] and "int8" in found["settings"]
        assert "raw_below differs between ranks: " in found["raw_below"]
        assert found["spelling"] == "no error"
        assert "ConfigError: the process group has ended" in found["aborted"], found["aborted"]
        assert "ConfigError: load_state_dict differs between ranks: called; not called" in found["loads"]
        assert "all-reduce float32[5000] #0" in found["sizes"] and "all-reduce float32[6000] #0" in found["sizes"]
        assert "ConfigError: the exchange has ended" in found["afterwards"], found["afterwards"]
        assert "all-reduce float32" in found["order"], found["order"]
        assert "it is sparse" in found["sparse"]
        assert found["destroyed"] is True and "ConfigError: the process group has ended" in found["ended"]
        assert len(found["outside"]) == 1 and "gradwire.torch.gradients()" in found["outside"][0]
    assert "DeadlineError: rank 1 did not call gradwire.torch.wrap within 1 s" in zero["alone"]
    assert "DeadlineError: rank 1 did not call a compressed all-reduce" in zero["passed on"]
    assert "The call is all-reduce float32[5000] #0 of process group" in zero["passed on"], zero["passed on"]
    assert "DeadlineError: no answer from rank 1 within 5s" in zero["passed on later"], zero["passed on later"]
    assert "The call is all-reduce float32[5000] #1 of process group" in zero["passed on later"], zero["passed on later"]
    for name in ("passed on", "passed on later"):
        assert "fewer than 4096 elements" in zero[name] and "outside of a backward pass and of gradients()" in zero[name], zero[name]
        assert "RuntimeError" in one[name] and "imed out" in one[name], one[name]
    for name, what in (("threads", "all-reduce"), ("saving", "state_dict")):
        assert "ConfigError: two threads call" in zero[name] and f"here {what}," in zero[name] and one[name] == "no error", zero[name]


@pytest.mark.parametrize(
    "compressor, options, says",
    [
        ("powersgd", {}, "without the shapes of their parameters"),
        ("signsgd", {}, "no sums"),
        ("eden:ef=ef21", {}, "ef=on"),
        ("eden:every=4", {}, "remove 'every'"),
        ("edn", {}, "did you mean 'eden'|unknown compressor"),
        (object(), {}, "spec string"),
        ("eden", {"when": "sometimes"}, "'backward' or 'always'"),
        ("eden", {"exchange": "reduce-scatter"}, "chosen by the call"),
        ("eden", {"deadline": 0}, "deadline"),
        ("eden", {"raw_below": -1}, "raw_below"),
        ("eden", {"threads": 0}, "threads"),
        ("eden", {"on_nonfinite": "ignore"}, "on_nonfinite"),
    ],
)
def test_arguments_are_refused(compressor, options, says):
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.torch.configure(compressor, **options)


def lost(rank, size):
    group = wrap(None, "topk:ratio=0.1", deadline=3.0)
    model = DistributedDataParallel(torch.nn.Linear(100, 100), process_group=group)
    step = lambda: model(torch.ones(2, 100)).sum().backward()
    # DistributedDataParallel sends the order of its buckets after the first step.
    for _ in range(3):
        step()
    if rank == 1:
        os._exit(0)
    return refusal(step)


def test_a_lost_rank_is_named():
    found, gone = outcomes(2, lost)
    assert gone == ("gone",)
    assert "rank 1" in found[1] and ("PeerLostError" in found[1] or "DeadlineError" in found[1]), found


def patient(rank, size):
    """The errors of a rank that waits alone for others to wrap a group with a long timeout."""
    gradwire.torch._group_options.DEADLINE = 1.0
    group = dist.new_group(timeout=timedelta(seconds=600))
    found = [refusal(lambda: wrap(group)), refusal(lambda: wrap(group, deadline=2.0))] if rank == 0 else []
    dist.barrier()
    return found


def test_ranks_meet_within_the_default_deadline():
    (default, given), _ = ranks(2, patient)
    assert "DeadlineError: rank 1 did not call gradwire.torch.wrap within 1 s" in default
    assert "DeadlineError: rank 1 did not call gradwire.torch.wrap within 2 s" in given


def other_backend(rank, size, store, deadline):
    os.environ["GRADWIRE_COMPRESSOR"] = "eden"
    dist.destroy_process_group()
    if rank == 1:
        # It begins without the backend, and gives up.
        return "plain"
    gradwire.torch._group_options.DEADLINE = 1.0
    gradwire.torch.configure(deadline=deadline)
    return refusal(lambda: dist.init_process_group("gradwire", init_method=f"file://{store}", rank=rank, world_size=size))


@pytest.mark.parametrize("deadline, waits", [(None, 1), (2.0, 2)])
def test_a_rank_without_the_backend_is_named(tmp_path, deadline, waits):
    found, _ = ranks(2, other_backend, str(tmp_path / "store"), deadline)
    assert f"DeadlineError: rank 1 of the process group did not create it with the backend gradwire within {waits} s" in found


def late_settings(rank, size):
    """The warnings of a group's sums after settings that came later than the group."""

    def told(*arguments, then=lambda: None, **options):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            gradwire.torch.configure(*arguments, **options)
            then()
            for group in (None, wrapped):
                for _ in range(2):
                    dist.all_reduce(torch.ones(10), group=group)
        return [str(one.message) for one in seen]

    wrapped = wrap(dist.new_group(backend="gloo"), "int8")
    assert (wrapped.configured, wrapped._calls.options.deadline) == (None, 1800.0)
    same = told("eden"), told("eden:bits=1"), told("eden", deadline=dist.group.WORLD.configured.deadline)
    undone = told("int8", then=lambda: gradwire.torch.configure("eden"))
    of_later_groups = told("int8", then=lambda: dist.new_group(backend="gradwire"))
    return [*same, undone, of_later_groups], told("int8", raw_below=100)


def test_settings_that_come_late_are_noticed():
    for correct, wrong in ranks(1, late_settings, backend="gradwire"):
        assert correct == [[]] * 5
        (warned,) = wrong
        assert "and keeps compressor='eden', raw_below=4096; no group has the new settings" in warned
        assert "process group '0' was made before" in warned and "before torch.distributed.init_process_group" in warned
