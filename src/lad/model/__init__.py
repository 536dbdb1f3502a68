"""Everything that touches a vision-language model: loading, prompts, the attention probe, scoring, features."""
