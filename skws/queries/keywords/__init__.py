"""Keyword queries: ``LiveKeywords`` (``kind.py``) and ``TopOperator`` answer those of a session.

From the outside in: an engine (``engine.py``) takes ordered batches and has one operator
(``keyword_operator.py``), which finds results by meshes (``meshes.py``) or delta joins (``word_queries.py``)
over the live tuples; ``result_emitter.py``, ``live_results.py`` and ``updates.py`` form results and remember
the reported ones. ``searching.py`` searches the live tuples, with ``live_words.py`` and ``live_paths.py``.
"""
