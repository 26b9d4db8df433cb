"""The use cases: enqueue, run, hand off. They speak to the outside through the ports of `ports`."""
