"""Declared by its author."""
