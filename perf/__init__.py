"""What debiasing costs, as ratios of things measured in turn in one run. `python -m perf --help` says how."""
