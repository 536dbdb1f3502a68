"""The published figures that come with the package are the published ones."""

import json
from pathlib import Path

from lad.reproduce.published import main_rows, published, rows_of

SOURCE = Path(__file__).parent.parent / "data" / "paper" / "published_results.json"


def test_they_are_those_of_the_source():
    assert published() == json.loads(SOURCE.read_text())


def test_rows_are_found_by_table():
    assert len(main_rows(1)) == 2 * 6 * 3
    assert len(main_rows(6)) == 2 * 5 * 3
    assert {row["method"] for row in main_rows(1)} >= {"chain_of_thought", "self_consistency"}
    parts = ("efficiency", "transfer", "ablation", "mmiu", "divergence", "alternatives")
    assert [len(rows_of(part)) for part in parts] == [9, 12, 8, 6, 4, 4]
