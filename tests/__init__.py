"""Tests of Cloister."""
