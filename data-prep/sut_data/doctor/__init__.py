"""`sut-doctor`: whether this installation and this machine do what training and decoding need.

It stands in this package because it must run where torch or fairseq do not: whatever imports them
is a program of its own (`sut_fairseq/cli/_probes`), which may crash.
"""
