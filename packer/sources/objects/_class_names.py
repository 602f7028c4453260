"""Class names: recognize the classes of libraries by module and name, without importing the libraries."""


def is_a(value: object, module: str, name: str) -> bool:
    """Return whether the class of a value, or one of its base classes, has this module and name."""
    return class_named(type(value), module, name) is not None


def class_named(cls: type, module: str, name: str) -> type | None:
    """Return the class with this module and name among a class and its base classes."""
    return next((each for each in cls.__mro__ if (each.__module__, each.__qualname__) == (module, name)), None)


def type_name(value: object) -> str:
    """Return the type of a value for messages: `torch.Tensor`, `list`."""
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
