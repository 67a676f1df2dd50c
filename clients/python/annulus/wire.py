"""Protobuf's wire format, as much of it as our messages need, read strictly.

A message is described by a ``Shape``; ``Shape.decode`` gives a dict with every field in it,
``Shape.encode`` the bytes in the order of field numbers, defaults left out: what our servers write.

Stricter than protobuf asks for, since what comes in may be hostile and two readers must never
understand one message differently: a field that may come once comes once, a number fits its type,
lists have a bound, groups are refused. Fields that are not known are passed over.
"""

from typing import Any, Dict, List, NamedTuple, Tuple, Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """Not a message of its kind."""


class Field(NamedTuple):
    """One field: ``kind`` is u32, u64, bool, enum, bytes, text or another ``Shape``."""

    name: str
    kind: Union[str, "Shape"]
    # Most elements of a list; 0 for a field that may come once.
    most: int = 0


_BITS = {"u32": 32, "u64": 64, "bool": 64, "enum": 64}
_DEFAULTS = {"u32": 0, "u64": 0, "bool": False, "enum": 0, "bytes": b"", "text": ""}


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    """The number at ``at``, and where the next thing begins."""
    value = shift = 0
    while True:
        try:
            byte = data[at]
        except IndexError:
            raise Malformed("ends inside a number") from None
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise Malformed("a number above 64 bits")
            return value, at
        shift += 7
        if shift >= 70:
            raise Malformed("a number of more than ten bytes")


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class Shape:
    """A kind of message: its name and its fields by number."""

    def __init__(self, name: str, fields: Dict[int, Field]):
        self.name = name
        self.fields = dict(sorted(fields.items()))

    def empty(self) -> Dict[str, Any]:
        """The message without any field."""
        return {field.name: _default(field) for field in self.fields.values()}

    def decode(self, data: bytes) -> Dict[str, Any]:
        """The message in ``data``; raises ``Malformed``. O(bytes)."""
        try:
            return self._decode(data)
        except Malformed as error:
            raise Malformed("%s: %s" % (self.name, error)) from None

    def _decode(self, data: bytes) -> Dict[str, Any]:
        message = self.empty()
        seen = set()
        at, end = 0, len(data)
        while at < end:
            tag, at = _varint(data, at)
            number, wire = tag >> 3, tag & 7
            if not 1 <= number < 1 << 29:
                raise Malformed("a field of number %d" % number)
            value: Any
            if wire == _VARINT:
                value, at = _varint(data, at)
            elif wire == _BYTES:
                size, at = _varint(data, at)
                if size > end - at:
                    raise Malformed("ends inside field %d" % number)
                value = data[at : at + size]
                at += size
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
                if at > end:
                    raise Malformed("ends inside field %d" % number)
                value = None
            else:
                raise Malformed("field %d of wire type %d" % (number, wire))
            field = self.fields.get(number)
            if field is None:
                continue
            if field.most:
                _extend(message[field.name], field, wire, value)
                continue
            if number in seen:
                raise Malformed("field %s twice" % field.name)
            seen.add(number)
            message[field.name] = _value(field, wire, value)
        return message

    def encode(self, message: Dict[str, Any]) -> bytes:
        """The bytes of ``message``, whose values were checked or made here."""
        out = bytearray()
        for number, field in self.fields.items():
            value = message.get(field.name, _default(field))
            if field.most and field.kind in _BITS:
                if value:
                    packed = bytearray()
                    for element in value:
                        _put_varint(packed, element)
                    _put(out, number, _BYTES, bytes(packed))
                continue
            for element in value if field.most else [value]:
                if isinstance(field.kind, Shape):
                    if element is not None:
                        _put(out, number, _BYTES, field.kind.encode(element))
                elif not field.most and element == _default(field):
                    continue
                elif field.kind in _BITS:
                    _put(out, number, _VARINT, int(element))
                else:
                    raw = element.encode() if isinstance(element, str) else element
                    _put(out, number, _BYTES, raw)
        return bytes(out)


def _put(out: bytearray, number: int, wire: int, value: Union[int, bytes]) -> None:
    _put_varint(out, number << 3 | wire)
    if isinstance(value, int):
        _put_varint(out, value)
    else:
        _put_varint(out, len(value))
        out += value


def _default(field: Field) -> Any:
    if field.most:
        return []
    if isinstance(field.kind, Shape):
        return None
    return _DEFAULTS[field.kind]


def _value(field: Field, wire: int, value: Any) -> Any:
    """One element, as its kind has it."""
    kind = field.kind
    if isinstance(kind, str) and kind in _BITS:
        if wire != _VARINT:
            raise Malformed("field %s of wire type %d" % (field.name, wire))
        if value >> _BITS[kind]:
            raise Malformed("field %s is %d, above %d bits" % (field.name, value, _BITS[kind]))
        return bool(value) if kind == "bool" else value
    if wire != _BYTES:
        raise Malformed("field %s of wire type %d" % (field.name, wire))
    if isinstance(kind, Shape):
        return kind.decode(value)
    if kind == "text":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Malformed("field %s is no UTF-8" % field.name) from None
    return value


def _extend(into: List[Any], field: Field, wire: int, value: Any) -> None:
    """One element of a list, or numbers packed into one field."""
    if field.kind in _BITS and wire == _BYTES:
        at = 0
        while at < len(value):
            element, at = _varint(value, at)
            _append(into, field, _value(field, _VARINT, element))
    else:
        _append(into, field, _value(field, wire, value))


def _append(into: List[Any], field: Field, element: Any) -> None:
    if len(into) >= field.most:
        raise Malformed("field %s with more than %d elements" % (field.name, field.most))
    into.append(element)
