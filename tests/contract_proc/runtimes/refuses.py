#!/usr/bin/env python3
"""Refuses the method that the environment names, with the code that it names."""

import os

import speaking

for request in speaking.read_requests():
    if request["method"] == os.environ["METHOD"]:
        speaking.refuse(request, int(os.environ["CODE"]), "it will not do", step_id="one", details={"expected": "1.0.0"})
    elif not speaking.begin(request):
        speaking.answer(request, speaking.make_poll_result("running"))
