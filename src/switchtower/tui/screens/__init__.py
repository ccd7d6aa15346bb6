"""The main screen and the modal screens in front of it."""
