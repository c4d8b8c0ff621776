"""The pages of ``docs/reference``, made from the code. See :mod:`tools.docs.__main__`."""
