"""The names by which rules and ``raw_names`` select parameters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Callable, Collection, Dict, List, Sequence, TypeVar

import torch

from .. import _core
from ._options import Options, rules_of, strings
from ._tensors import plain

Given = TypeVar("Given", bound=Options)


def selected(model: torch.nn.Module, sent: Collection[str], options: Given) -> Given:
    """The options with ``rules`` and ``raw_names`` for a reducer, which knows one name of each
    parameter.

    A tied parameter has several names, such as ``wte.weight`` and ``lm_head.weight``. ``sent`` are
    the names that the reducer knows: the first name of each parameter. A rule or word that matches
    another name becomes a rule for the first one. Words that match only parameters that are not
    sent, such as frozen ones, are left out. The reducer refuses words that match no parameter,
    since they may be misspelt.

    Raises ``ConfigError`` for a rule that matches only frozen parameters.
    """
    names = _Names(model, sent)
    rules = [rule for given in rules_of(options.rules) for rule in names.rules(given)]
    words = strings("raw_names", options.raw_names)
    # A parameter with a word of ``raw_names`` is sent uncompressed unless a rule matches it, so
    # these rules are the last.
    tied = [f"{name} -> none" for word in words for name in names.tied(lambda one: word in one)]
    return replace(options, rules=[*rules, *tied], raw_names=[word for word in words if names.keeps_word(word)])


class _Names:
    """All names of the parameters of a model, and whether they are sent."""

    def __init__(self, model: torch.nn.Module, sent: Collection[str]) -> None:
        self._named = [(plain(name), parameter) for name, parameter in model.named_parameters(remove_duplicate=False)]
        names: Dict[int, List[str]] = {}
        for name, parameter in self._named:
            names.setdefault(id(parameter), []).append(name)
        # The other names of each parameter that is sent, by the name that the reducer knows.
        self._others = {
            name: [other for other in names[id(parameter)] if other != name] for name, parameter in self._named if name in sent
        }

    def tied(self, fits: Callable[[str], Any]) -> List[str]:
        """The known names of parameters that match only by another name."""
        return [known for known, others in self._others.items() if not fits(known) and any(map(fits, others))]

    def rules(self, rule: str) -> Sequence[str]:
        """The rules that apply ``rule`` to parameters with several names, too."""
        pattern, _, spec = (part.strip() for part in rule.partition("->"))
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        found = [(name, parameter) for name, parameter in self._named if expression.fullmatch(name)]
        if found and not any(parameter.requires_grad for _, parameter in found):
            raise _core.ConfigError(
                f"rule '{rule}' matches no tensor that requires gradients: '{found[0][0]}' is frozen; remove the rule, or call "
                "requires_grad_() first"
            )
        tied = [f"{name} -> {spec}" for name in self.tied(expression.fullmatch)]
        # The reducer refuses a rule that matches none of the names that it knows.
        return tied if tied and not any(map(expression.fullmatch, self._others)) else [rule, *tied]

    def keeps_word(self, word: str) -> bool:
        """Whether to pass a word of ``raw_names`` to the reducer: if it matches a name that the
        reducer knows, or no name of the model."""
        return any(word in known for known in self._others) or not any(word in name for name, _ in self._named)
