"""The checks of `tower doctor`. Each one yields findings and changes nothing, and a failing check does not stop the others."""
