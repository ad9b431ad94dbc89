"""What a model costs: predicted from its spec, counted in a real pass, measured on this machine."""
