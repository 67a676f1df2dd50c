"""Why bytes were refused. Whoever refuses keeps what is held, counts the reason, and says it."""


class Refused(ValueError):
    """What was received or read is not taken; ``why`` is one of ``REASONS``."""

    why = ""

    def __init__(self, why: str, message: str):
        assert why in REASONS, why
        super().__init__("%s: %s" % (why, message))
        self.why = why


# One word for each reason, in the order in which they are looked for.
REASONS = {
    "length": "no section, no byte, or more than any snapshot has",
    "checksum": "the bytes are not those that were sent",
    "format": "a format from the future: upgrade this package",
    "malformed": "not a message of its kind, a field that is no value, or sections that do not fit",
    "foreign-cluster": "another control plane answered",
    "foreign-ring": "another ring was sent",
    "fork": "the alarm: this epoch is held under another checksum",
    "not-newer": "this epoch or a newer one is held",
    "chain": "the next epoch does not name the held one as its predecessor",
    "unknown-layout": "the circle cannot be cut here: upgrade this package",
    "unknown-hash": "keys cannot be hashed here: upgrade this package",
    "unknown-state": "a member is read whose state is not known here: upgrade this package",
    "sense": "it decodes, and makes no sense",
    "base": "a delta from a snapshot that is not the one held",
}
