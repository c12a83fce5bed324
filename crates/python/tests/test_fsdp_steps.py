"""Tests what a step is under FSDP2: whoever calls the reductions of gradients, an optimizer step is
one."""

import gc
import weakref

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import gradwire
import gradwire.torch
from device import DEVICE
from gradwire.torch import _optimizer_steps
from sharded import Layer
from world import ranks


class Blocks(nn.Module):
    """Blocks of which a step may use some, in any order, perhaps checkpointed, between two layers
    or alone."""

    def __init__(self, kind=lambda: nn.Linear(8, 8)):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(kind() for _ in range(3))
        self.last = nn.Linear(8, 8)

    def forward(self, x, use=(0, 1, 2), reentrant=False):
        x = self.first(x)
        for at in use:
            x = torch.tanh(checkpoint(self.blocks[at], x, use_reentrant=True) if reentrant else self.blocks[at](x))
        return self.last(x)


def blocks():
    torch.manual_seed(0)
    model = Blocks()
    for module in (*model.blocks, model):
        fully_shard(module, mesh=init_device_mesh(DEVICE.type, (torch.distributed.get_world_size(),)))
    return model


def inputs(rank, step):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(2 * step + rank)).to(DEVICE)


def reduce_by_hand(model):
    """Reduces the gradients that a backward pass without synchronization left, as pipeline
    schedules do."""
    model.set_requires_gradient_sync(True)
    for module in (*model.blocks, model):
        (group,) = module._get_fsdp_state()._fsdp_param_groups
        group.post_backward()


def after(model, optimizer):
    optimizer.step()
    optimizer.zero_grad()


def usual(model, optimizer, x):
    model(x).sum().backward()
    after(model, optimizer)


def by_hand(model, optimizer, x):
    model.set_requires_gradient_sync(False)
    model(x).sum().backward()
    reduce_by_hand(model)
    after(model, optimizer)


def by_hand_without_optimizer(model, optimizer, x):
    model.set_requires_gradient_sync(False)
    model(x).sum().backward()
    reduce_by_hand(model)


def by_hand_in_micro_batches(model, optimizer, x):
    model.set_requires_gradient_sync(False)
    outputs = [model(x) for _ in range(2)]
    for output in outputs:
        output.sum().backward()
    reduce_by_hand(model)
    after(model, optimizer)


def reentrant(model, optimizer, x):
    model(x.requires_grad_(), reentrant=True).sum().backward()
    after(model, optimizer)


def one_block_twice(model, optimizer, x):
    model(x, use=(0, 1, 0)).sum().backward()
    after(model, optimizer)


def two_losses(model, optimizer, x):
    for block in model.blocks[:2]:
        block(x).sum().backward()
    after(model, optimizer)


def zeros_in_place(model, optimizer, x):
    """Another block in each step, and gradients that stay."""
    model.blocks[0](x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def two_steps_of_other_blocks(model, optimizer, x):
    for block in model.blocks[:2]:
        block(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def two_skipped_steps_of_other_blocks(model, optimizer, x):
    """As where a GradScaler leaves out the optimizer's step."""
    for block in model.blocks[:2]:
        block(x).sum().backward()
        optimizer.zero_grad()


def two_optimizers(model, optimizer, x):
    """Two networks in one model, as of a GAN."""
    for block in model.blocks[:2]:
        block(x).sum().backward()
        torch.optim.SGD(block.parameters(), lr=0.1).step()


def accumulated(model, optimizer, x):
    for _ in range(2):
        model(x).sum().backward()
    after(model, optimizer)


def evaluated(model, optimizer, x):
    usual(model, optimizer, x)
    with torch.no_grad():
        model(x)


CASES = [
    (usual, 1),
    (by_hand, 1),
    (by_hand_without_optimizer, 1),
    (by_hand_in_micro_batches, 1),
    (reentrant, 1),
    (one_block_twice, 1),
    (two_losses, 1),
    (zeros_in_place, 1),
    (two_steps_of_other_blocks, 2),
    (two_skipped_steps_of_other_blocks, 2),
    (two_optimizers, 2),
    (accumulated, 2),
    (evaluated, 1),
]


def counted(rank, size):
    """The steps after each of three repetitions of each case, and whether parameters are those of
    FSDP2 alone."""
    found = []
    for case, _ in CASES:
        runs = []
        for registered in (False, True):
            model = blocks()
            handle = gradwire.torch.fsdp.register(model, "none") if registered else None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            steps = []
            for step in range(3):
                case(model, optimizer, inputs(rank, step))
                steps.append(handle and handle.step)
            for module in (*model.blocks, model):
                # After some passes, modules still hold whole parameters.
                module.reshard()
            runs.append([parameter.full_tensor() for parameter in model.parameters()])
        found.append((steps, all(torch.equal(one, other) for one, other in zip(*runs)), handle.stats()["total_steps"]))
    return found


def test_a_step_of_the_optimizer_is_one_step():
    for found in ranks(2, counted):
        for (case, steps), (counts, same, total) in zip(CASES, found):
            assert counts == [steps, 2 * steps, 3 * steps] and total == 3 * steps, (case.__name__, counts)
            assert same, case.__name__


def in_backward(rank, size):
    """Optimizers that run in the backward pass, one for each parameter, called by the hooks of
    parameters or of activations."""
    model = blocks()
    handle = gradwire.torch.fsdp.register(model, "none")
    own = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step(parameter):
        own[parameter].step()
        own[parameter].zero_grad()

    others = set(model.blocks[2].parameters())
    for parameter in own.keys() - others:
        parameter.register_post_accumulate_grad_hook(step)

    def last(*_):
        for parameter in others:
            step(parameter)

    # By another hook, after the last block.
    hook = model.blocks[1].register_forward_hook(lambda _, __, output: output.register_hook(last) and None)
    counts = []
    for at in range(4):
        if at == 2:
            hook.remove()
            for parameter in others:
                parameter.register_post_accumulate_grad_hook(step)
        model(inputs(rank, at).requires_grad_(), reentrant=at >= 2).sum().backward()
        counts.append(handle.step)
    # What watches optimizers ends with the handle.
    watching = len(_optimizer_steps._after._methods)
    handle.close()
    left, kept = len(_optimizer_steps._after._methods), weakref.ref(handle)
    del handle, model, own, others, step, last, hook, parameter
    gc.collect()
    return counts, watching - left, kept() is None


def test_optimizers_may_run_in_the_backward_pass():
    assert ranks(2, in_backward) == [([1, 2, 3, 4], 1, True)] * 2


class Seen(Layer):
    """A layer that keeps the weights that the passes of a step see."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32))


def draws(rank, size):
    """The numbers of different weights that each layer saw in each step, in which the gathers are
    those of a pipeline, of reentrant checkpointing, or of a layer that is used twice."""
    torch.manual_seed(0)
    model = nn.Sequential(Seen(), Seen())
    for module in model:
        fully_shard(module, reshard_after_forward=True)
    gradwire.torch.fsdp.register(model, "none", parameters="qsgd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 32, requires_grad=True)

    def micro_batches():
        for layer in model:
            layer.set_requires_gradient_sync(False)
        outputs = [model[1](model[0](x)) for _ in range(2)]
        for output in outputs:
            output.sum().backward()
        for layer in reversed(model):
            layer.set_requires_gradient_sync(True)
            (group,) = layer._get_fsdp_state()._fsdp_param_groups
            group.post_backward()
            # The schedule gathers the layers of another stage for its backward pass.
            model[0].unshard()
            model[0].look()
            model[0].reshard()

    def repeated():
        checkpoint(model[0], checkpoint(model[1], x, use_reentrant=True), use_reentrant=True).sum().backward()

    def twice():
        model[0](model[1](model[0](x))).sum().backward()

    found = []
    for step in (micro_batches, repeated, twice, micro_batches):
        step()
        found.append([len({tuple(seen.flatten().tolist()) for seen in layer.seen}) for layer in model])
        for layer in model:
            layer.seen.clear()
        optimizer.step()
        optimizer.zero_grad()
    return found


def test_all_gathers_of_a_step_have_the_same_bits():
    # After the last reduction of the first layer, its gather belongs to the next step.
    assert ranks(2, draws) == [[[2, 1], [1, 1], [1, 1], [2, 1]]] * 2
