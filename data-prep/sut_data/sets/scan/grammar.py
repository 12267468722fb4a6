"""The SCAN language: its 20,910 commands and the actions that they stand for.

SCAN (Lake and Baroni, 2018, "Generalization without Systematicity", appendix) is finite: 34 verb
phrases, each alone, `twice` or `thrice`, alone or in pairs joined by `and` or `after`.
"""

from __future__ import annotations

from sut_data.kit.examples import Example

VERBS = ("walk", "look", "run", "jump")
DIRECTIONS = ("left", "right")
REPETITIONS = {"twice": 2, "thrice": 3}


def verb_phrases() -> list[str]:
    """Return the 34 phrases without repetition, such as `jump` or `turn opposite left`."""
    phrases = list(VERBS)
    for manner in ("", "opposite ", "around "):
        for verb in (*VERBS, "turn"):
            phrases += [f"{verb} {manner}{direction}" for direction in DIRECTIONS]
    return phrases


def all_commands() -> list[str]:
    """Return the 20,910 commands of the language, each once."""
    phrases = verb_phrases()
    sentences = phrases + [f"{phrase} {word}" for phrase in phrases for word in REPETITIONS]
    joined = [
        f"{first} {conjunction} {second}"
        for conjunction in ("and", "after")
        for first in sentences
        for second in sentences
    ]
    return sentences + joined


def interpret(command: str) -> list[str]:
    """Return the actions that a command stands for.

    Raises:
        ValueError: if the command is not in the language.
    """
    words = command.split()
    if "and" in words:
        split = words.index("and")
        return _sentence(words[:split], command) + _sentence(words[split + 1 :], command)
    if "after" in words:
        split = words.index("after")
        return _sentence(words[split + 1 :], command) + _sentence(words[:split], command)
    return _sentence(words, command)


def _sentence(words: list[str], command: str) -> list[str]:
    """Actions of a verb phrase and its repetition: `jump left twice`."""
    if words and words[-1] in REPETITIONS:
        return _verb_phrase(words[:-1], command) * REPETITIONS[words[-1]]
    return _verb_phrase(words, command)


def _verb_phrase(words: list[str], command: str) -> list[str]:
    """Actions of a verb with an optional manner and direction: `jump around left`."""
    if len(words) == 1 and words[0] in VERBS:
        return [f"I_{words[0].upper()}"]
    known = len(words) in (2, 3) and words[0] in (*VERBS, "turn") and words[-1] in DIRECTIONS
    if known:
        turn = f"I_TURN_{words[-1].upper()}"
        act = [] if words[0] == "turn" else [f"I_{words[0].upper()}"]  # `turn` is the turn itself
        if len(words) == 2:
            return [turn, *act]
        if words[1] == "opposite":
            return [turn, turn, *act]
        if words[1] == "around":
            return [turn, *act] * 4
    raise ValueError(f"`{command}` is not a SCAN command")


def all_pairs() -> list[Example]:
    """Return every command of the language with its actions."""
    return [make_pair(command) for command in all_commands()]


def make_pair(command: str) -> Example:
    """Return a command with its actions."""
    return Example(command, " ".join(interpret(command)))
