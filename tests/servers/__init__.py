"""Servers for tests of remote stores: an S3 in the process of the tests, and a way to it that misbehaves."""
