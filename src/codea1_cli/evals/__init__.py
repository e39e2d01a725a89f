"""Evaluations of both models."""
