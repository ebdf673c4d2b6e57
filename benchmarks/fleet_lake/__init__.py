"""A made fleet: 10,000 devices over 90 days, written into a lake directly, with answers that are known because they were planted."""
