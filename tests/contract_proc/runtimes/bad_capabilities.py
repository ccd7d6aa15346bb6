#!/usr/bin/env python3
"""Says of itself what the environment has for it."""

import json
import os

import speaking

for request in speaking.read_requests():
    speaking.answer(request, json.loads(os.environ["CAPABILITIES"]))
