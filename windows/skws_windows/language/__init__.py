"""Window expressions: windows that a user defines by regular expressions or formulas over guards.

They follow Praveen and Hitarth, "Window Expressions for Stream Data Processing", called
"the window paper" here. z3 is loaded only when a part that needs it is called
(determinisation, the static check, formulas).
"""
