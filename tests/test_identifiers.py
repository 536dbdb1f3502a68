from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lad.errors import IdentifierError
from lad.identifiers import IDENTIFIER_SETS, Branch, TokenTrie, log_softmax, make_identifiers

END = 99


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("digits", "1 2 3 4 5 6 7 8 9 10 11 12"),
        ("uppercase", "A B C D E F G H I J K L"),
        ("lowercase", "a b c d e f g h i j k l"),
        ("roman", "I II III IV V VI VII VIII IX X XI XII"),
        ("words", "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"),
    ],
)
def test_the_first_twelve_of_each_set(kind: str, expected: str) -> None:
    for count in range(1, 13):
        assert list(make_identifiers(kind, count)) == expected.split()[:count]


def test_roman_numbers() -> None:
    numbers = make_identifiers("roman", 3999)
    assert [numbers[value - 1] for value in (14, 49, 90, 444, 1994, 3888)] == [
        "XIV", "XLIX", "XC", "CDXLIV", "MCMXCIV", "MMMDCCCLXXXVIII",
    ]  # fmt: skip
    assert len(set(numbers)) == 3999


@pytest.mark.parametrize("kind", list(IDENTIFIER_SETS))
def test_each_set_holds_what_it_says_and_no_more(kind: str) -> None:
    limit = IDENTIFIER_SETS[kind][1]
    assert len(set(make_identifiers(kind, limit))) == limit
    with pytest.raises(IdentifierError, match=f"'{kind}' has {limit} identifiers, {limit + 1} are needed"):
        make_identifiers(kind, limit + 1)


def test_identifiers_of_ones_own() -> None:
    assert make_identifiers(["x", "y", "z"], 2) == ("x", "y")
    for own, message in (
        (["x"], "1 identifiers were given, 2 are needed"),
        (["x", "x"], "identifier 1: 'x' is given twice"),
        (["x", " "], "identifier 1: An identifier is empty"),
        (["x", 2], "identifier 1: An identifier is empty"),
    ):
        with pytest.raises(IdentifierError, match=message):
            make_identifiers(own, 2)  # type: ignore[arg-type]
    with pytest.raises(IdentifierError, match="no identifier set 'emoji'.*Choose one of: digits"):
        make_identifiers("emoji", 2)


def brute_force(sequences: list[tuple[int, ...]], logits: dict[tuple[int, ...], np.ndarray]) -> list[float]:
    """Probabilities by the definition: at every node a softmax over what may follow there.

    ``logits`` gives, for each prefix, the next token's logits over the whole vocabulary.
    """
    ended = [(*sequence, END) for sequence in sequences]
    probabilities = []
    for path in ended:
        probability = 1.0
        for depth, token in enumerate(path):
            valid = {other[depth] for other in ended if len(other) > depth and other[:depth] == path[:depth]}
            weights = {follower: math.exp(logits[path[:depth]][follower]) for follower in valid}
            probability *= weights[token] / sum(weights.values())
        probabilities.append(probability)
    return probabilities


token_sequences = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=9, unique=True
)


@given(token_sequences, st.integers(0, 2**32))
def test_the_trie_agrees_with_the_definition(sequences: list[tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    prefixes = {sequence[:depth] for sequence in sequences for depth in range(len(sequence) + 1)}
    logits = {prefix: rng.normal(0, 3, END + 1) for prefix in sorted(prefixes)}
    trie = TokenTrie(sequences, END)
    log_probs = trie.log_probs([logits[branch.prefix][list(branch.continuations)] for branch in trie.branches])
    assert log_probs.shape == (len(sequences),)
    assert log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(log_probs), brute_force(sequences, logits), rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_probs).sum(), 1, rtol=1e-12)


@given(token_sequences)
def test_only_nodes_with_a_choice_are_branches(sequences: list[tuple[int, ...]]) -> None:
    trie = TokenTrie(sequences, END)
    ended = [(*sequence, END) for sequence in sequences]
    followers: dict[tuple[int, ...], set[int]] = {}
    for path in ended:
        for depth, token in enumerate(path):
            followers.setdefault(path[:depth], set()).add(token)
    expected = {prefix: tokens for prefix, tokens in followers.items() if len(tokens) > 1}
    assert {branch.prefix: set(branch.continuations) for branch in trie.branches} == expected
    depths = [len(branch.prefix) for branch in trie.branches]
    assert depths == sorted(depths)


def test_ten_is_not_read_as_one() -> None:
    # digits "1".."12" of one token each: "10", "11" and "12" share the prefix "1"
    sequences = [tuple(int(digit) for digit in str(number)) for number in range(1, 13)]
    trie = TokenTrie(sequences, END)
    assert trie.branches == (Branch((), (1, 2, 3, 4, 5, 6, 7, 8, 9)), Branch((1,), (END, 0, 1, 2)))
    first, second = np.zeros(9), np.array([0.0, math.log(5), 0.0, 0.0])
    first[0] = math.log(8)  # P("1...") = 1/2
    expected = [1 / 2 / 8, *[1 / 16] * 8, 1 / 2 * 5 / 8, 1 / 2 / 8, 1 / 2 / 8]
    np.testing.assert_allclose(np.exp(trie.log_probs([first, second])), expected, rtol=1e-12)


def test_up_to_nine_digits_need_no_second_step() -> None:
    trie = TokenTrie([[number] for number in range(1, 10)], END)
    assert [branch.prefix for branch in trie.branches] == [()]
    logits = np.random.default_rng(0).normal(size=(5, 2, 9))
    np.testing.assert_array_equal(trie.log_probs([logits]), log_softmax(logits))


def test_whole_batches_are_scored_at_once() -> None:
    trie = TokenTrie([[1], [1, 0], [2]], END)
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(4, len(branch.continuations))).astype(np.float32) for branch in trie.branches]
    together = trie.log_probs(logits)
    assert together.shape == (4, 3)
    for row in range(4):
        np.testing.assert_array_equal(together[row], trie.log_probs([each[row] for each in logits]))


def test_a_single_identifier_is_certain() -> None:
    trie = TokenTrie([[7, 8]], END)
    assert trie.branches == ()
    assert trie.log_probs([]).tolist() == [0.0]


def test_identifiers_that_cannot_be_told_apart() -> None:
    with pytest.raises(IdentifierError, match="identifiers 0 and 2: Has the same tokens"):
        TokenTrie([[1], [2], [1]], END)
    with pytest.raises(IdentifierError, match="identifier 1: Has no tokens"):
        TokenTrie([[1], []], END)


def test_log_softmax_is_stable() -> None:
    scores = np.array([[1e4, 1e4 + math.log(3)], [-1e4, -np.inf]])
    np.testing.assert_allclose(np.exp(log_softmax(scores)), [[0.25, 0.75], [1, 0]], rtol=1e-10)
