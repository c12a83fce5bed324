"""Seconds to a target: the steps to it, times the time of a step on a link, seed by seed."""

import statistics

from hooks import GRADWIRE, LOCAL, PLAIN_STEPS, PYTORCH

RATES = ("10mbit", "100mbit", "1gbit", "none")


class Targets:
    """The records of one task on one number of ranks."""

    def __init__(self, records, task, ranks):
        own = [record for record in records if (record["task"], record["ranks"]) == (task, ranks)]
        trained = [record for record in own if record.get("turn") is None]
        timed = [record for record in own if record.get("turn") is not None]
        self.steps = {(record["hook"], record["seed"]): record["steps_to_target"] for record in trained}
        self.times = {(record["hook"], record["rate"], record["seed"]): record["step_ms"] for record in timed}
        self.hooks = [hook for hook in (*PYTORCH, *GRADWIRE, *LOCAL) if any(hook == of for of, _ in self.steps)]
        self.rates = [rate for rate in RATES if any(rate == of for _, of, _ in self.times)]
        self.seeds = sorted({seed for _, _, seed in self.times})

    def seconds(self, hook, rate, seed):
        """``None`` if the target was not reached or the hook was not timed."""
        needed, step = self.steps.get((hook, seed)), self.times.get((hook, rate, seed))
        if not needed or not step:
            return None
        if hook != "powerSGD_hook":
            return needed * step / 1e3
        # Its first steps are uncompressed, as without a hook.
        return (PLAIN_STEPS * self.times["no hook", rate, seed] + (needed - PLAIN_STEPS) * step) / 1e3

    def of_all_seeds(self, hook, rate):
        """The seconds of each seed that reached the target."""
        return [seconds for seed in self.seeds if (seconds := self.seconds(hook, rate, seed))]


def spread(values, digits):
    """The mean, and the standard deviation if there are several."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
