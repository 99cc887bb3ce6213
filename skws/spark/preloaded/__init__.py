"""One Python that has loaded what Spark's Python processes need, and forks them.

Spark starts eight Python processes and more until the first results of a live search, most of them one after
another, and each loads the same modules. Here they are loaded once, while Java starts. Spark is given a
program in place of Python (``driver.py``); it hands its files, arguments and environment (``handoff.py``) to
the process that is loaded (``server.py``), stands for the fork until that has ended, and passes signals on.
"""
