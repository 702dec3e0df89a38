#!/usr/bin/env python3
"""Checks the arithmetic of leases and trust with clocks that drift: exact numbers, all extremes.

lease.pml has a time that passes equally for all. This is what allows it: with clocks whose rates lie
in [1 - e, 1 + e], no GET is believed whose call began after a backup could act as primary.

    lease   P's clock says s before it sends a message; its lease lasts until s + L(1 - e)
    wait    the backup acts L(1 + e) of its own clock after it received that message
    tick    P writes t only if t + W is not after the end of the lease
    trust   the client's clock said c1 before it asked P for its clock, and P answered ts; a GET that
            began at c >= c1 is believed if c + (ts - c1) + (c - c1) * 2e/(1 - e) < t + W

The worst moments are known: t as late as the rule allows, the backup acts as early as it may. The
latest call that is believed is then one point of lines that bend where a clock changes its rate.
The clocks of primary and client take both extremes before, between and after ping and message, the
distances between the events take several values. As it is, no call may pass the take-over, and one
must reach it: the rule is not stricter than needed. Each rule left out must let a call through.
Fractions: nothing is rounded.

And the group's time (expiry.pml, group_time.h): what a primary lets run since an answer is never
above what the backup lets run since the message. SAME_RATE: both run equally slow.
"""
import itertools
import sys
from fractions import Fraction

E = Fraction(1, 100)
L = Fraction(1)
W = Fraction(1, 4)
RATES = (1 - E, 1 + E)


class Clock:
    """A rate until each moment, and one after them all. Reads 0 at moment 0."""

    def __init__(self, moments, rates):
        self.bends = [(Fraction(0), Fraction(0))]
        self.rates = rates
        for moment, rate in zip(moments, rates):
            before, value = self.bends[-1]
            self.bends.append((moment, value + (moment - before) * rate))

    def at(self, moment):
        for (begin, value), (end, _), rate in zip(self.bends, self.bends[1:], self.rates):
            if moment <= end:
                return value + (moment - begin) * rate
        return self.bends[-1][1] + (moment - self.bends[-1][0]) * self.rates[-1]

    def when(self, value):
        for (begin, first), (_, last), rate in zip(self.bends, self.bends[1:], self.rates):
            if value <= last:
                return begin + (value - first) / rate
        return self.bends[-1][0] + (value - self.bends[-1][1]) / self.rates[-1]


AGEING = 2 * E / (1 - E)
# What is left out or wrong, and what the difference of the clocks is then taken to grow by.
RULES = {"as it is": AGEING, "NO_AGEING": 0, "AGEING_E": E, "AGEING_2E": 2 * E,
         "C1_AT_ANSWER": AGEING, "C1_AFTER_CALL": AGEING, "NO_MARGIN": AGEING}


def excess(rule, moments, rates):
    """How long after the take-over a call is believed; None: no call is, after the ping."""
    ping, stamp, sent, received = moments
    bends = sorted((ping, sent))
    primary, client = (Clock(bends, each) for each in rates[:2])
    c1 = client.at(stamp if rule == "C1_AT_ANSWER" else ping)
    theta = primary.at(stamp) - c1
    margin = 0 if rule == "NO_MARGIN" else E
    limit = primary.at(sent) + L * (1 - margin)  # the latest t + W
    takes_over = received + L * (1 + margin) / rates[2]
    # The call that is not believed any more: c + theta + (c - c1) * ageing = limit
    call = client.when((limit - theta + c1 * RULES[rule]) / (1 + RULES[rule]))
    if rule != "C1_AFTER_CALL" and call < ping:
        return None
    return call - takes_over


def worst(rule):
    ping = Fraction(20)
    worst_yet = None
    for to_stamp, to_sent, to_received in itertools.product(
            (Fraction(0), Fraction(1, 50)),
            map(Fraction, ("-10", "-2", "-1", "-1/2", "0", "1/2", "5", "12", "600")),
            (Fraction(0), Fraction(1, 10))):
        moments = (ping, ping + to_stamp, ping + to_sent, ping + to_sent + to_received)
        for rates in itertools.product(itertools.product(RATES, repeat=3),
                                       itertools.product(RATES, repeat=3), RATES):
            found = excess(rule, moments, rates)
            if found is not None and (worst_yet is None or found > worst_yet):
                worst_yet = found
    return worst_yet


def time_ahead(rule):
    """The most by which the primary's estimate is above the backup's, in seconds."""
    of_backup, of_primary = 1 - 2 * E, 1 - (2 if rule == "SAME_RATE" else 4) * E
    return max(passed * fast * of_primary - (passed + way) * slow * of_backup
               for passed in map(Fraction, ("0", "1/10", "1", "600"))
               for way in map(Fraction, ("0", "1/100", "1"))
               for fast, slow in itertools.product(RATES, repeat=2))


def main():
    failed = False
    print("rule            a call is believed at most this long after the take-over")
    for rule in RULES:
        found = worst(rule)
        right = found == 0 if rule == "as it is" else found > 0
        failed = failed or not right
        print(f"{rule:<15} {float(found) * 1000:+.3f} ms{'' if right else '  WRONG'}")
    for rule in ("as it is", "SAME_RATE"):
        found = time_ahead(rule)
        right = found == 0 if rule == "as it is" else found > 0
        failed = failed or not right
        print(f"time, {rule:<9} {float(found) * 1000:+.3f} ms{'' if right else '  WRONG'}")
    print(f"a difference that was measured {float(W / AGEING):.1f} s ago uses up all of W")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
