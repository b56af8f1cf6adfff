"""Events become decision traces: masking and policy, windows, order, recovery of dead processes' journals."""
