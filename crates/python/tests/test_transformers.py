"""Tests the files that the callback for Transformers writes to checkpoints and reads."""

import pytest
import torch

import gradwire
from frameworks import needs, together, transformers
from models import exchange_bytes
from world import outcomes, ranks


def transformers_saves(rank, size, folder):
    transformers("3lc", folder, 2)[0].train()


def transformers_goes_on(rank, size, folder):
    trainer, compression = transformers("3lc", folder, 4, save=False)
    counted = []
    compression.on_step_end = lambda *others, **named: counted.append(compression.handle.step)
    trainer.train(resume_from_checkpoint=True)
    return counted[-1]


def test_a_rank_reads_its_own_file_or_all(tmp_path):
    needs("transformers")
    ranks(3, together, transformers_saves, str(tmp_path))
    files = [tmp_path / "checkpoint-2" / f"gradwire-rank{rank}.pt" for rank in range(3)]
    assert ranks(2, together, transformers_goes_on, str(tmp_path)) == [4, 4]
    for file in files:
        file.unlink()
    ranks(2, together, transformers_saves, str(tmp_path))
    # What another run has left there does not matter.
    files[2].write_bytes(b"not a state")
    assert ranks(2, together, transformers_goes_on, str(tmp_path)) == [4, 4]
    files[1].unlink()
    told, own = outcomes(2, together, transformers_goes_on, str(tmp_path))
    assert own[1] == "StateError" and "gradwire-rank1.pt is missing" in own[2], own
    assert told[1] == "StateError" and "rank 1 cannot load" in told[2], told
    files[0].unlink()
    for failed in outcomes(2, together, transformers_goes_on, str(tmp_path)):
        assert failed[1] == "StateError" and "gradwire-rank0.pt is missing" in failed[2], failed


def transformers_elsewhere(rank, size, saved, folder):
    """Resumes from a checkpoint in another output folder; returns the first state then, and the one
    that was saved."""
    trainer, compression = transformers("3lc", folder, 4, save=False)
    first = []
    compression.on_step_begin = lambda *others, **named: first.append(exchange_bytes(compression.handle.state_dict()))
    trainer.train(resume_from_checkpoint=f"{saved}/checkpoint-2")
    return first[0] == exchange_bytes(torch.load(f"{saved}/checkpoint-2/gradwire-rank{rank}.pt"))


def test_states_are_those_of_the_checkpoint_that_training_resumes_from(tmp_path):
    needs("transformers")
    one, two = tmp_path / "one", tmp_path / "two"
    ranks(2, together, transformers_saves, str(one))
    # There is no other checkpoint in the output folder, and then there is one of as many steps.
    assert ranks(2, together, transformers_elsewhere, str(one), str(two)) == [True, True]
    (two / "checkpoint-2").mkdir(parents=True)
    for rank in range(2):
        (two / "checkpoint-2" / f"gradwire-rank{rank}.pt").write_bytes(b"the state of another run")
    assert ranks(2, together, transformers_elsewhere, str(one), str(two)) == [True, True]


def saved_by(size, run):
    """A state that a rank of a run saves."""
    return {
        "gradwire": "hook",
        "step": 2,
        "world_size": size,
        "exchange": {"rank0": (torch.zeros(1, dtype=torch.uint8),)},
        "run": run,
    }


def save_files(folder, size, run):
    """The files that the ranks of a run write."""
    for rank in range(size):
        torch.save(saved_by(size, run), folder / f"gradwire-rank{rank}.pt")


def runs(states):
    """The runs that states are of."""
    return {state["run"] for state in ([states] if isinstance(states, dict) else states)}


def test_files_of_an_earlier_run_with_more_ranks_are_not_read(tmp_path):
    needs("transformers")
    from gradwire.torch._state_files import read, remove_stale

    save_files(tmp_path, 3, "first")
    save_files(tmp_path, 2, "second")
    # Rank 2 of three has a file of its own, of the first run.
    for rank in range(3):
        assert runs(read(tmp_path, rank, 3)) == {"second"}
    remove_stale(tmp_path, 2)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gradwire-rank0.pt", "gradwire-rank1.pt"]
    assert isinstance(read(tmp_path, 1, 2), dict)


def test_files_of_two_runs_are_refused(tmp_path):
    needs("transformers")
    from gradwire.torch._state_files import read

    save_files(tmp_path, 3, "first")
    (tmp_path / "gradwire-rank0.pt").unlink()
    # As on a node whose disk does not have the file of rank 0.
    assert runs(read(tmp_path, 1, 3)) == {"first"}
    torch.save(saved_by(2, "second"), tmp_path / "gradwire-rank0.pt")
    with pytest.raises(gradwire.StateError, match="states of runs with 2 and with 3 ranks"):
        read(tmp_path, 1, 2)
