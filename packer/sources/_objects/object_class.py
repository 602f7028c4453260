"""Object class: what an object is by the names of its classes, so that no library is imported to ask."""


def is_a(value: object, module: str, name: str) -> bool:
    """Whether one of the value's classes, its own or one that it derives from, has that module and name."""
    return class_named(type(value), module, name) is not None


def class_named(cls: type, module: str, name: str) -> type | None:
    """The class of that module and name among a class and those that it derives from."""
    for each in cls.__mro__:
        if each.__module__ == module and each.__qualname__ == name:
            return each
    return None


def said(value: object) -> str:
    """The type of a value as messages name it: `torch.Tensor`, `list`."""
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
