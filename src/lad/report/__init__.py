"""Reports: tables, figures and a browser of samples, from a stored run and without a model."""
