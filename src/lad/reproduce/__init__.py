"""The paper's tables and figures as named plans: what each needs is observed once, for all of them together."""
