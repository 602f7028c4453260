"""Class names: tests whether an object belongs to a class of a library, without importing the library."""


def is_a(value: object, module: str, name: str) -> bool:
    """Return whether the class of `value`, or one of its base classes, has this module and name."""
    return class_named(type(value), module, name) is not None


def class_named(cls: type, module: str, name: str) -> type | None:
    """Return `cls` or the base class of `cls` with this module and name, or None."""
    return next((each for each in cls.__mro__ if (each.__module__, each.__qualname__) == (module, name)), None)


def type_name(value: object) -> str:
    """Return the name of a value's class for messages, such as `torch.Tensor` or `list`."""
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
