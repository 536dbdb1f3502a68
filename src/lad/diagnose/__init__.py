"""What to know first about a model: is it position-biased, does its attention know better, what would AGD gain."""
