"""The rows of the comparison: what is promised, over which transport it is measured, and which
figure of which measurement (measurements.py) says it. A row has several lines where it promises
several things."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    number: int
    over: str  # "verbs", "shm" or "tcp"
    measurement: str
    name: str
    goal: tuple  # ("<=", 1.05), (">=", 0.95), or () if the figure has no goal
    figure: str = ""  # its name in the measurement; "": the row's own

    def key(self):
        return self.figure or self.name

    def holds(self, figure):
        """None without a goal."""
        if not self.goal:
            return None
        direction, bound = self.goal
        return figure <= bound if direction == "<=" else figure >= bound

    def goal_text(self):
        return f"{self.goal[0]} {self.goal[1]:,}" if self.goal else ""


def at_most(bound):
    return ("<=", bound)


def at_least(bound):
    return (">=", bound)


def rivals(over, stores=("redis", "memcached"), times=5):
    """The same GETs of another store over TCP, and how many times as good ours shall be."""
    rows = []
    for store in stores:
        for name, goal in (("GETs/s, 1 client, 32 in flight", at_least(times)),
                           ("GETs/s, 16 clients, 1 in flight each", at_least(times)),
                           ("p50 of a GET, 1 client", at_most(1 / times))):
            rows.append(Row(11, over, f"{store}_{over}", f"{name}, / {store}", goal))
    return rows


ROWS = [
    Row(1, "verbs", "gets", "warm GET p50 / ib_read_lat p50", at_most(1.05),
        "warm GET p50 / ib_read_lat"),
    Row(1, "verbs", "gets", "warm GET p99 / ib_read_lat p99", at_most(1.3)),
    Row(2, "verbs", "gets", "cold GET p50 / ib_read_lat p50", at_most(2.1),
        "cold GET p50 / ib_read_lat"),
    Row(3, "verbs", "gets", "GETs/s of one READ / ib_read_bw messages/s", at_least(0.95),
        "warm GETs/s / ib_read_bw messages/s"),
    Row(3, "verbs", "gets", "GETs/s of two READs / ib_read_bw messages/s", at_least(0.48),
        "cold GETs/s / ib_read_bw messages/s"),
    Row(4, "verbs", "gets", "READs per warm GET, keys drawn evenly", at_most(1.02),
        "READs per warm GET"),
    Row(4, "verbs", "gets", "READs per cold GET, keys drawn evenly", at_most(2.05),
        "READs per cold GET"),
    Row(4, "shm", "ycsb_b", "READs per GET, YCSB-B", at_most(1.02)),
    Row(4, "shm", "loads", "READs per warm GET, index load 0.9", at_most(1.02),
        "READs a hit, warm, load 0.90"),
    Row(4, "shm", "loads", "READs per cold GET, index load 0.9", at_most(2.05),
        "READs a hit, cold, load 0.90"),
    Row(4, "shm", "loads", "READs per miss, index load 0.9", at_most(1.3),
        "READs a miss, warm, load 0.90"),
    Row(4, "shm", "loads", "READs per miss, index load 0.9, no cache", at_most(1.3),
        "READs a miss, cold, load 0.90"),
    Row(5, "verbs", "puts", "PUT (memory) p50 / two ib_send_lat p50", at_most(1.2),
        "PUT p50 / two ib_send_lat"),
    Row(5, "verbs", "puts", "PUTs/s, 32 in flight, / ib_send_bw messages/s", at_least(1)),
    Row(6, "shm", "sync", "time of a group of PUTs (sync) / fdatasync, 16 clients", at_most(1.2),
        "group / fdatasync, 16 clients"),
    *(Row(7, over, f"mixed_{over}", "GETs/s with 10 % PUTs / alone", at_least(0.9))
      for over in ("verbs", "shm")),
    *(Row(8, over, f"server_cpu_{over}", "server's user CPU per GET (ns)", at_most(50),
          "server user CPU per GET (ns)")
      for over in ("verbs", "shm")),
    Row(9, "shm", "instructions", "client's instructions per warm GET, 100 B", at_most(400),
        "client instructions per warm GET, 100 B"),
    *(Row(10, "shm", "copies", f"GET p50 / copy p50, {size}", at_most(3),
          f"warm p50 / copy p50, {size}")
      for size in ("16 B", "100 B", "1024 B", "4096 B", "16384 B", "65536 B")),
    *rivals("verbs"),
    *rivals("shm"),
    *rivals("tcp", ["redis"], 1),
    *(Row(12, "shm", "index", name, at_most(12))
      for name in ("groups of the index a key (B)", "all memory of the index a key (B)")),
    *(Row(12, "shm", "index", f"memory of a record beyond key and value (B), values of {values}",
          at_most(40))
      for values in ("100 B", "1 to 1,024 B")),
    Row(12, "shm", "memory_redis", "keys in a GiB, values of 100 B, / Redis", at_least(1)),
    *(Row(13, "shm", "background", f"{name}, {size}", at_least(0.9))
      for size in ("100 B", "1000 B")
      for name in ("PUTs until flushed / RocksDB's loop", "write-behind alone / RocksDB's loop",
                   "PUTs until flushed / db_bench")),
    *(Row(13, "shm", "put", f"PUT p99 with / without a disk, {load}", at_most(1.1))
      for load in ("one after the other", "2000/s")),
    *(Row(14, "shm", "restart", f"start to first GET beyond RocksDB's opening (s), {keys} keys",
          at_most(1), f"the same beyond RocksDB's opening (s), {keys} keys")
      for keys in (10_000, 100_000, 1_000_000)),
    Row(14, "shm", "restart", "loading / RocksDB's iterator, 1000000 keys", at_least(0.7)),
    Row(15, "shm", "doubling", "GET p99 while the keys double / while they are overwritten",
        at_most(2), "GET p99 doubling / p99 overwriting"),
    Row(15, "shm", "doubling", "GETs that fail while the keys double", at_most(0),
        "failed GETs while doubling"),
    *(Row(16, over, f"connections_{over}", "memory of the server for a client (KiB)", at_most(64))
      for over in ("verbs", "shm")),
    *(Row(16, over, f"clients_{over}", "GETs/s with 128 clients / with the best number",
          at_least(0.9))
      for over in ("verbs", "shm")),
    *(Row(17, over, f"storm_{over}", name, goal)
      for over, gets in (("verbs", 10**7), ("shm", 10**9))
      for name, goal in (("torn or older values returned", at_most(0)),
                         ("GETs that raced writers", at_least(gets)))),
    *(Row(18, "shm", "put_rates", name, goal)
      for name, goal in (("PUTs/s, 1 client, 32 in flight, overwriting, / Redis", at_least(6)),
                         ("PUTs/s, 1 client, 32 in flight, first load, / Redis", at_least(3)),
                         ("PUTs/s, 16 clients, 32 in flight each, / Redis", at_least(3)),
                         ("PUTs/s, 1 client, 32 in flight / 1 in flight", at_least(4)))),
    *(Row(19, "shm", "mixes", name, goal)
      for name, goal in (*((f"YCSB-{mix}, 32 in flight, / Redis", at_least(5)) for mix in "ABF"),
                         ("YCSB-A, 32 in flight / 1 in flight", at_least(3)),
                         *((f"YCSB-B / YCSB-C, {n} in flight", at_least(0.7)) for n in (1, 32)))),
    *(Row(20, "shm", "put_instructions", f"{side}'s instructions per PUT, {how}", at_most(most))
      for side, how, most in (("server", "packed", 800), ("server", "alone", 1_800),
                              ("client", "packed", 500), ("client", "alone", 1_200))),
    *(Row(21, over, f"threads_{over}",
          f"{kind}/s of {threads} threads, a shared client of {connections} / a client each", ())
      for over in ("verbs", "shm", "tcp") for kind in ("GETs", "PUTs") for threads in (1, 4, 16)
      for connections in (1, 2)),
]
