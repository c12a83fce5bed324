"""Tests that unmodified scripts are started with compressed gradients."""

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn

from gradwire.torch import run
from models import Net, flat, train
from world import ranks

SCRIPT = """
import sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
import gradwire.torch
import models

[variant] = sys.argv[1:]
rank = torch.distributed.get_rank()
saved = f"{__file__}{rank}.pt"
torch.manual_seed(0)
model = DDP(models.Net())
if variant == "hook":
    model.register_comm_hook(None, bf16_compress_hook)
if variant == "registered":
    gradwire.torch.register(model, "int8")
model.eval()
if rank == 0:
    # Only this rank evaluates.
    model(models.data(rank, 0)[0])
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if variant == "scaler":
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(3):
        x, labels = models.data(rank, step)
        loss = nn.functional.cross_entropy(model(x * (float("inf") if (rank, step) == (1, 1) else 1)), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
elif variant == "fails":
    models.train(model, optimizer, rank, range(1))
    try:
        model(models.data(rank, 0)[0] * float("inf")).sum().backward()
    except gradwire.NonFiniteError:
        pass
elif variant == "continues":
    model.load_state_dict(torch.load(saved))
    models.train(model, optimizer, rank, range(1, 3))
elif variant != "no model":
    models.train(model, optimizer, rank, range(1 if variant == "stops" else 3))
    torch.save(model.state_dict(), saved)
result = models.flat(model)
"""


def started(script, compressor, variant, *options):
    """The parameters after a script on this rank, and what gradwire wrote to standard error."""
    run_path, results = run.runpy.run_path, []

    def run_and_keep(*given, **named):
        results.append(run_path(*given, **named)["result"])
        if variant == "exits":
            raise SystemExit(0)

    run.runpy.run_path = run_and_keep
    try:
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.suppress(SystemExit):
            run.main(["--compressor", compressor, *options, script, variant])
    finally:
        run.runpy.run_path = run_path
    return results[0], errors.getvalue()


def all_variants(rank, size, script):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(3))
    untouched = nn.parallel.DistributedDataParallel.__init__
    results = {variant: started(script, compressor, variant) for variant, compressor in VARIANTS.items()}
    for variant in ("as it is", "stops", "continues"):
        state = [] if variant == "as it is" else ["--state", f"{script}.state"]
        results[f"topk, {variant}"] = started(script, "topk", variant, *state)
    # Rank 1 is the first of its node, with a file of an earlier run that had more ranks.
    os.environ["LOCAL_RANK"] = str(1 - rank)
    folder = Path(f"{script}.failed/model0")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gradwire-rank5.without-residuals").touch()
    dist.barrier()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        failed = started(script, "topk", "fails", "--state", f"{script}.failed")[1]
    dist.barrier()
    results["failed"] = failed, [str(one.message) for one in told], sorted(file.name for file in folder.iterdir())
    assert nn.parallel.DistributedDataParallel.__init__ is untouched
    return flat(model), results


VARIANTS = {"as it is": "none", "hook": "eden", "scaler": "eden", "registered": "eden", "no model": "eden", "exits": "eden"}


def test_scripts_train_compressed_as_they_are(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (plain, one), (_, two) = ranks(2, all_variants, str(script))
    for said, told, files in (one.pop("failed"), two.pop("failed")):
        # The residuals of a failed step are not saved, and the files of ranks that this run does
        # not have are gone.
        assert "saved the state" not in said and any("this checkpoint has no state of gradwire" in text for text in told)
        assert files == ["gradwire-rank0.without-residuals", "gradwire-rank1.without-residuals"], files
    # Without compression, ranks have the parameters of DistributedDataParallel.
    numpy.testing.assert_allclose(one["as it is"][0], plain, rtol=1e-5, atol=1e-6)
    for variant, (parameters, said) in one.items():
        assert numpy.isfinite(parameters).all() and (parameters == two[variant][0]).all(), variant
        # Only rank 0 speaks.
        assert said.startswith("gradwire.torch.run: ") and two[variant][1] == "", (variant, said)
    for variant in ("hook", "scaler"):
        assert (one[variant][0] != plain).any(), variant
        assert "Net exchanges gradients by all-gather with eden" in one[variant][1], one[variant][1]
    assert "instead of the hook bf16_compress_hook and the all-reduce" in one["hook"][1]
    for variant in ("hook", "exits"):
        assert "3 steps, rank 0 sent" in one[variant][1]
    assert "nothing was compressed" not in one["registered"][1]
    assert "the script registers its model with gradwire itself" in one["registered"][1]
    assert "no DistributedDataParallel of this process" in one["no model"][1]
    assert "Net ran in eval mode only" in one["no model"][1] and "eval mode" not in one["hook"][1]
    # A run that continues with the saved residuals is the run that was never stopped.
    assert (one["topk, continues"][0] == one["topk, as it is"][0]).all()
    assert "has no complete state" in one["topk, stops"][1] and "saved the state after step 1 in" in one["topk, stops"][1]
    assert "continues at step 1 with the state in" in one["topk, continues"][1]


def test_scripts_and_modules_start_as_python_starts_them(tmp_path, monkeypatch, capsys):
    (tmp_path / "beside.py").write_text("NUMBER = 3\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(__name__, beside.NUMBER, sys.argv[1:])\nsys.exit(4)\n")
    for arguments in ([str(tmp_path / "script.py")], ["-m", "script"]):
        monkeypatch.setattr(sys, "path", [str(tmp_path) if "-m" in arguments else "", *sys.path])
        monkeypatch.setattr(sys, "argv", sys.argv)
        with pytest.raises(SystemExit) as ended:
            run.main([*arguments, "--epochs", "2"])
        assert ended.value.code == 4
        assert capsys.readouterr().out == "__main__ 3 ['--epochs', '2']\n"
        sys.modules.pop("beside")
        monkeypatch.undo()


@pytest.mark.parametrize("arguments, says", [(["absent.py"], "there is no script absent.py"), ([], "the following arguments are required: script")])
def test_what_cannot_start_is_refused(arguments, says, capsys):
    with pytest.raises(SystemExit) as refused:
        run.main(arguments)
    assert says in capsys.readouterr().err + str(refused.value.code)
