"""Changes of what the decoder may attend to, for methods that need them; the model itself stays as it is."""
