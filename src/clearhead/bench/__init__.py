"""Measurements that anyone can repeat: each compares on this machine, in one run, and says what it saw."""
