"""How fast limpet is, beside what else there is: `make bench`."""
