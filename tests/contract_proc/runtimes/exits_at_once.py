#!/usr/bin/env python3
"""Has nothing to say."""
