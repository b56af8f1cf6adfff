"""What leaves for a telemetry backend: receipts of sealed records, our own health, records replayed as spans."""
