"""Evaluation: from picks to figures that can be compared."""
