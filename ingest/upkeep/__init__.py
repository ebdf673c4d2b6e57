"""Upkeep of a lake: daily rollups, compaction, vacuum, retention; everything safe while others write and read."""
