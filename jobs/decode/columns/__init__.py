"""Records of a binary format decoded in step: one field of all of them after the other, with numpy.

A reader is made once per schema. It knows the records that are written as writers write them. It gives up every other
record (broken, or odd in any way), which is then decoded alone by the row decoder: that one is the judge.
"""
