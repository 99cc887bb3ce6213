"""A query and the choices that go with it, before anything is parsed or run."""
