"""Window expressions: windows that a user defines by regular expressions over guards.

Praveen and Hitarth, "Window Expressions for Stream Data Processing": below
"the window paper". z3 is loaded by the parts that need it (determinisation,
the static check), when they are called.
"""
