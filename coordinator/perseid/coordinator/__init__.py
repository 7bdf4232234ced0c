"""Decides what runs where and which input each epoch has. See README.md."""
