"""What a program that uses an SDK must see with an instrumentation exactly as without one, a function a check."""
