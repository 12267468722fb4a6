"""`sut-doctor`: check whether this installation and this machine can train and decode.

It is in this package because it must run even where torch or fairseq do not: whatever imports them
is a separate program (`sut_fairseq/cli/_probes`), which may crash.
"""
