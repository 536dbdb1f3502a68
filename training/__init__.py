"""Makes the small model that ships with `lad`, from nothing, by one command: ``python -m training``."""
