"""Answers every vector again, from the documentation alone. Python 3.9 or later, no packages; xxh3-64
is checked where the package `xxhash` is installed.

Usage: python3 check.py
"""

import hashlib, json, os, struct, sys, zlib
from fractions import Fraction

try:
    import xxhash
except ImportError:
    xxhash = None

M64 = (1 << 64) - 1


def mix64(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


def rotl(x, n):
    return (x << n | x >> 64 - n) & M64


def sip24(seed, key):
    k0, k1 = seed, 0
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = v[0] + v[1] & M64; v[2] = v[2] + v[3] & M64
            v[1] = rotl(v[1], 13) ^ v[0]; v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = rotl(v[0], 32)
            v[2] = v[2] + v[1] & M64; v[0] = v[0] + v[3] & M64
            v[1] = rotl(v[1], 17) ^ v[2]; v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = rotl(v[2], 32)

    # Whole words, then what is left with the length in the last byte.
    padded = key + bytes(7 - len(key) % 8) + bytes([len(key) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def murmur3(seed, key):
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed
    k1 = lambda lane: rotl(lane * c1 & M64, 31) * c2 & M64
    k2 = lambda lane: rotl(lane * c2 & M64, 33) * c1 & M64
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        a, b = struct.unpack_from("<QQ", key, at)
        h1 = (rotl(h1 ^ k1(a), 27) + h2 & M64) * 5 + 0x52DCE729 & M64
        h2 = (rotl(h2 ^ k2(b), 31) + h1 & M64) * 5 + 0x38495AB5 & M64
    a, b = struct.unpack("<QQ", key[whole:].ljust(16, b"\0"))
    h1, h2 = h1 ^ k1(a) ^ len(key), h2 ^ k2(b) ^ len(key)
    h1 = h1 + h2 & M64
    h2 = h2 + h1 & M64
    return mix64(h1) + mix64(h2) & M64


def before(seed, key):
    return key if seed == 0 else seed.to_bytes(8, "little") + key


def fnv1a(key):
    state = 0xCBF29CE484222325
    for byte in key:
        state = (state ^ byte) * 0x100000001B3 & M64
    return state


HASHES = {
    "siphash-2-4": sip24,
    "murmur3-x64-128": murmur3,
    "md5-64": lambda seed, key: int.from_bytes(hashlib.md5(before(seed, key)).digest()[:8], "little"),
    "fnv1a-mix-64": lambda seed, key: mix64(fnv1a(before(seed, key))),
    "crc32-mix": lambda seed, key: mix64(zlib.crc32(before(seed, key))),
}
if xxhash:
    HASHES["xxh3-64"] = lambda seed, key: xxhash.xxh3_64_intdigest(key, seed)


def take(order, rf, zone_of):
    """The zone rule over nodes in order of preference, which may name a node again."""
    zones = len(set(zone_of.values()))
    cap, found = -(-rf // zones), []
    while len(found) < min(rf, len(zone_of)):
        for node in order:
            of_zone = sum(zone_of[taken] == zone_of[node] for taken in found)
            if len(found) < rf and node not in found and of_zone < cap:
                found.append(node)
        cap += 1
    return found


def walk(rf, members):
    """[(token, list)] of every distinct token."""
    members = [m for m in members if m["weight"] > 0]
    zone_of = {m["handle"]: m["zone"] for m in members}
    points = sorted((int(t, 16), m["node"], i, m["handle"]) for m in members for i, t in enumerate(m["tokens"]))
    ranges = []
    for at, point in enumerate(points):
        if at == 0 or points[at - 1][0] != point[0]:
            order = [p[3] for p in points[at:] + points[:at]]
            ranges.append((point[0], take(order, rf, zone_of)))
    return ranges


def lookup(ranges, h):
    return next((l for t, l in ranges if t >= h), ranges[0][1] if ranges else [])


def log_table():
    table = []
    for i in range(2048):
        value, log = (2048 + i) << 52, 0
        for _ in range(57):
            square = value * value >> 63
            carry = square >> 64
            value, log = square >> carry, log << 1 | carry
        table.append(log)
    return table + [1 << 57]


TABLE = log_table()


def log2(x):
    x = max(x, 1)
    high = x.bit_length() - 1
    below = (x << 63 - high) - (1 << 63)
    at, along = below >> 52, below & (1 << 52) - 1
    return (high << 57) + TABLE[at] + ((TABLE[at + 1] - TABLE[at]) * along >> 52)


def jump(state, buckets):
    at = following = 0
    while following < buckets:
        at = following
        state = state * 2862933555777941757 + 1 & M64
        following = int((at + 1) * (float(1 << 31) / float((state >> 33) + 1)))
    return at


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def continuum(client, servers):
    servers = [s for s in servers if s[2] > 0]
    total = single(sum(s[2] for s in servers))
    points = {}
    order = reversed(servers) if client != "spymemcached" else servers
    for name, handle, weight in order:
        groups = int(single(single(single(weight / total) * 160) / 4 * len(servers)))
        if client == "spymemcached" and len({s[2] for s in servers}) == 1:
            groups = 40
        for group in range(groups):
            digest = hashlib.md5(f"{name}-{group}".encode()).digest()
            for point in struct.unpack("<4I", digest):
                points[point] = handle
    return sorted(points.items())


def at_every_hash(old, new):
    """Ranges whose lists differ, one piece per token of either."""
    ends = sorted({t for t, _ in old} | {t for t, _ in new})
    pieces = []
    for at, end in enumerate(ends):
        o, n = lookup(old, end), lookup(new, end)
        if o != n:
            pieces.append([ends[at - 1], end, o, n])
    joined = []
    for piece in pieces:
        if joined and joined[-1][1] == piece[0] and joined[-1][2:] == piece[2:]:
            joined[-1][1] = piece[1]
        else:
            joined.append(piece)
    if len(joined) > 1 and joined[-1][1] == joined[0][0] and joined[-1][2:] == joined[0][2:]:
        joined[0][0] = joined.pop()[0]
    return joined


checked = skipped = 0


def same(found, expected, where):
    global checked
    checked += 1
    if found != expected:
        sys.exit(f"{where}: found {found}, expected {expected}")


def cases(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name)) as file:
        return json.load(file)["cases"]


def hashed(name, seed, key):
    global skipped
    if name not in HASHES:
        skipped += 1
        return None
    return "%016x" % HASHES[name](int(seed, 16), key)


for c in cases("hashes.json"):
    found = hashed(c["hash"], c["seed"], bytes.fromhex(c["key"]) * c["times"])
    found is None or same(found, c["value"], c)
for c in cases("tokens.json"):
    raw = bytes([len(c["node"])]) + c["node"].encode() + struct.pack("<I", c["index"])
    same(raw.hex(), c["bytes"], c)
    found = hashed(c["hash"], c["seed"], raw)
    found is None or same(found, c["token"], c)

rings = {"no node": []}
for c in cases("walks.json"):
    ranges = walk(c["rf"], c["members"])
    zone_of = {m["handle"]: m["zone"] for m in c["members"] if m["weight"] > 0}
    best = min(c["rf"], len(set(zone_of.values())))
    lacks = lambda l: (c["rf"] - len(l), best - len({zone_of[h] for h in l}))
    found = [("%016x" % t, l) + lacks(l) for t, l in ranges]
    expected = [(r["token"], r["list"], r["missing_replicas"], r["missing_zones"]) for r in c["ranges"]]
    same(found, expected, c["name"])
    if c["rf"] == 3:
        rings[c["name"]] = ranges
for c in cases("slots.json"):
    bits = c["bits"]
    rings[c["name"]] = [((s + 1 << 64 - bits) - 1, l) for s, l in enumerate(c["lists"])]
for c in cases("lookups.json"):
    same(lookup(rings[c["name"]], int(c["hash"], 16)), c["list"], c)

for c in cases("diffs.json"):
    old, new = ([(int(r["token"], 16), r["list"]) for r in c[side]] for side in ("old", "new"))
    found = []
    for start, end, o, n in at_every_hash(old, new):
        gain, lose = [h for h in n if h not in o], [h for h in o if h not in n]
        found.append({
            "start": "%016x" % start, "end": "%016x" % end, "old": o, "new": n, "gainers": gain, "losers": lose,
            "owner_changes": o[:1] != n[:1], "order_only": not gain and not lose,
        })
    same(found, c["changes"], c["name"])

first, *rest = cases("log2.json")
same(["%016x" % entry for entry in TABLE], first["table"], "log table")
for c in rest:
    same("%016x" % log2(int(c["x"], 16)), c["log2"], c)
for c in cases("rendezvous.json"):
    nodes = [(n, h, z, w, int(x, 16)) for n, h, z, w, x in c["nodes"]]
    for name, *_, bid in nodes:
        found = hashed(c["hash"], c["seed"], bytes([len(name)]) + name.encode())
        found is None or same(found, "%016x" % bid, name)
    zone_of = {h: z for _, h, z, w, _ in nodes if w > 0}
    for key, h, expected in c["keys"]:
        found = hashed(c["hash"], c["seed"], bytes.fromhex(key))
        found is None or same(found, h, key)
        cost = lambda n: (Fraction((1 << 63) - log2(mix64(int(h, 16) ^ n[4])), n[3]), n[0])
        order = [n[1] for n in sorted((n for n in nodes if n[3] > 0), key=cost)]
        same(take(order, c["rf"], zone_of), expected, (c["name"], key))

for c in cases("jump.json"):
    same(jump(int(c["hash"], 16), c["buckets"]), c["bucket"], c)
for c in cases("ketama.json"):
    points = continuum(c["client"], c["servers"])
    same(len(points), c["point_count"], c["client"])
    same([["%08x" % p, h] for p, h in points[:200]], c["points"], c["client"])
    for key, h, owner in c["keys"]:
        digest = int.from_bytes(hashlib.md5(bytes.fromhex(key)).digest()[:4], "little")
        same("%08x" % digest, h, key)
        same(next((o for p, o in points if p >= digest), points[0][1]), owner, key)
for c in cases("bounded.json"):
    if "bound" in c:
        (n, d), total = c["bound"], int(c["total"], 16)
        found = min(-(-total * n // (d * c["nodes"])), M64) if c["nodes"] else 0
        same("%016x" % found, c["capacity"], c)
    else:
        loads, caps = c["loads"], c["capacities"]
        free = [at for at in range(len(loads)) if loads[at] < caps[at]]
        fullness = lambda at: loads[at] / caps[at] if caps[at] else float("inf")
        chosen = free[0] if free else min(range(len(loads)), key=fullness, default=None)
        same((chosen, bool(loads) and not free), (c["chosen"], c["over"]), c)

print(f"{checked} answers agree" + (f"; {skipped} of xxh3-64 not checked: install xxhash" if skipped else ""))
