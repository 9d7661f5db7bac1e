"""Does each part of the GPU stack on this node work?

A check looks at one part, and gives the files by which other containers learn that it works; what does not
work is an error with what was seen. `validator_settings` has the variables, `context` what a check may ask,
`check_table` every check. Waiting, removing and writing files is the app's.
"""
