/* Each write once, although answers are lost and primaries change: one outcome per client's slot.
 *
 * A client has slots. In each it has one write without an answer at most, and numbers its writes
 * upwards. A server keeps of each slot the number and the outcome of the last write (the replay cache
 * of RFC 8881 2.10.6). The entry of a write in the log carries client, slot, number and outcome, so
 * a replica that has the write has the outcome.
 *
 * Servers 0, 1 and 2 become primary in this order, each at any time. 1 is in sync from the start; 2
 * is too, or joins server 1. A deposed primary goes on: it executes, but its backups obey it no more.
 * A backup that hears of server 1 takes over server 1's log, and loses what it had besides.
 *
 * A request is taken up as late as can be, and is under way until it is in the log. Two ways to
 * learn an outcome:
 *  - the client sends the same number again, to any server (the default);
 *  - ASK: a request belongs to one connection with one server, and the client asks on another
 *    connection. "Was not applied, and never will be" is a read of the table: the answer is believed
 *    if the lease covers the call (lease.pml), here: if the server has heard of all its in-sync
 *    backups in its term, and no later primary acts.
 *
 * FLOOR: a joiner begins with an empty table. "Never will be" is said only of a write that is younger
 * than the table: the client says which version it knew before it sent the write, and the table says
 * from which one on it has all outcomes.
 *
 * Left out: the order of the entries of different slots, on which nothing depends.
 *
 * accept: one slot, three numbers, the same number again
 * accept SLOTS=2 NUMBERS=1: two slots
 * accept ASK: or the client asks
 * accept ASK SLOTS=2 NUMBERS=1: two slots, asking
 * accept REUSED_EARLY LOST_IS_FINE: a slot reused early loses outcomes, and executes nothing twice
 * accept ASK FLOOR: joiners begin with an empty table
 * accept ASK FLOOR SLOTS=2 NUMBERS=1: likewise, two slots
 * accept-long SLOTS=2 NUMBERS=2: two numbers in each of two slots
 * reject FORGOTTEN_IS_NEW: a client that the server does not know is taken for a new one
 * reject NUMBER_NOT_COMPARED: a slot's outcome answers any number
 * reject SLOTS=2 NUMBERS=1 SLOT_NOT_COMPARED: the outcome of a number answers for any slot
 * reject TABLE_IN_MEMORY: the outcomes are not in the stream
 * reject RECORDED_APART: the outcome is an entry of its own, after the write's
 * reject JOINER_WITHOUT_TABLE: a joiner is copied the data without the outcomes
 * reject ANSWERED_EARLY: an outcome is answered before all in-sync replicas have it
 * reject REUSED_EARLY: the client reuses a slot before it has the answer, and loses the outcome
 * reject REUSED_EARLY LOST_IS_FINE NEW_WHILE_UNDER_WAY: a number is taken up while a lower one of its slot is under way
 * reject OLD_IS_NEW REUSED_EARLY LOST_IS_FINE: a number below the slot's is taken for a new one
 * reject ASK ASKED_BEFORE_END: "never will be" while the request's connection may still deliver it
 * reject ASK FLOOR FLOOR_NOT_COMPARED: "never will be" of a write that may be older than the table
 * reject ASK ASK_NO_LEASE: "never will be" by a server that may be deposed, or has not cut its backups
 */
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef NUMBERS
#define NUMBERS 3
#endif
#define ALL_OF(s) (7 << (3 * (s)))
#define BIT(s, m) (1 << (3 * (s) + (m) - 1)) /* write m of slot s */
#define LAST(k, s) last[2 * (k) + (s)]

byte done[3];      /* bits: the writes that a server's data shows */
byte last[6];      /* the number whose outcome a server has, by slot */
byte under_way[3]; /* bits: taken up, not in the log */
#ifdef RECORDED_APART
byte being_recorded[3]; /* in the log, without their outcomes */
#endif
bool known[3] = true; /* the server knows the client */
bool acts[3];
bool in_sync_2[2]; /* server 2 is in sync, as server 0 or 1 has it */
byte took[3]; /* bits: what 1 and 2 have answered to 0, and 2 to 1, that they have */
bool heard; /* server 2 has heard of server 1's term */
bool forgot;

byte sent[2], got[2]; /* by slot */
byte at_[2];          /* ASK: 1 + the server that the newest request was sent to */
byte over;            /* ASK: bits: requests whose connection has ended at the server */
byte said_never, said_done; /* bits: what the client has learnt */
bool young[2]; /* FLOOR: sent when the client knew what server 2's table began with */
bool joined;   /* FLOOR: server 2's table began empty */

#define NEWEST(k) (acts[k] && (k == 2 || !acts[(k + 1) % 3]))
inline is_sound(k) { /* the newest primary's data is what the client believes */
  assert(!NEWEST(k) || ((done[k] & said_never) == 0 && (done[k] & said_done) == said_done))
}

/* ---- the client ---- */

#ifdef REUSED_EARLY
#define MAY_SEND(s) true
#else
#define MAY_SEND(s) (got[s] == sent[s])
#endif
inline send(s, k) {
  d_step {
#ifdef ASK
    MAY_SEND(s) && sent[s] < NUMBERS && acts[k] -> sent[s]++; at_[s] = k + 1;
#ifdef FLOOR
    if :: young[s] = joined :: young[s] = false fi
#else
    skip
#endif
#else
    MAY_SEND(s) && sent[s] < NUMBERS && k == 0 -> sent[s]++
#endif
  }
}

/* ---- a server ---- */

#ifdef ASK
#define ARRIVES(k, s, m) (at_[s] == (k) + 1 && m == sent[s] && !(over & BIT(s, m)))
#else
#define ARRIVES(k, s, m) (m <= sent[s])
#endif
#ifdef NEW_WHILE_UNDER_WAY
#define FREE(k, s) true
#else
#define FREE(k, s) !(under_way[k] & ALL_OF(s))
#endif
#ifdef OLD_IS_NEW
#define IS_NEW(k, s, m) (LAST(k, s) != m)
#else
#define IS_NEW(k, s, m) (LAST(k, s) < m)
#endif
inline take_up(k, s, m) {
  d_step {
    acts[k] && known[k] && ARRIVES(k, s, m) && IS_NEW(k, s, m) && FREE(k, s) &&
      !(under_way[k] & BIT(s, m)) ->
    under_way[k] = under_way[k] | BIT(s, m)
  }
}
inline execute(k, s, m) {
  d_step {
#ifdef RECORDED_APART
    (under_way[k] & BIT(s, m)) && !(being_recorded[k] & BIT(s, m)) ->
    being_recorded[k] = being_recorded[k] | BIT(s, m);
#else
    (under_way[k] & BIT(s, m)) ->
    under_way[k] = under_way[k] - BIT(s, m); LAST(k, s) = m;
#endif
    assert(!(done[k] & BIT(s, m))); /* executed twice */
    done[k] = done[k] | BIT(s, m);
    is_sound(k)
  }
}
#ifdef RECORDED_APART
inline record(k, s, m) {
  d_step {
    (being_recorded[k] & BIT(s, m)) ->
    being_recorded[k] = being_recorded[k] - BIT(s, m); under_way[k] = under_way[k] - BIT(s, m);
    LAST(k, s) = m
  }
}
#endif
/* All in-sync replicas have answered server k that they have the write. */
#ifdef ANSWERED_EARLY
#define REPLICATED(k, s, m) true
#else
#define REPLICATED(k, s, m) \
  ((k) == 2 || ((k) == 0 && (took[0] & BIT(s, m)) && (!in_sync_2[0] || (took[1] & BIT(s, m)))) || \
   ((k) == 1 && (!in_sync_2[1] || (took[2] & BIT(s, m)))))
#endif
#define WAITS(k, s, m) (acts[k] && m <= sent[s] && m > got[s])
inline answer(k, s, m) {
  d_step {
#ifdef NUMBER_NOT_COMPARED
    WAITS(k, s, m) && LAST(k, s) && REPLICATED(k, s, LAST(k, s)) ->
    assert(LAST(k, s) == m); /* the outcome of another write */
#elif defined(SLOT_NOT_COMPARED)
    WAITS(k, s, m) && ((LAST(k, 0) == m && REPLICATED(k, 0, m)) ||
      (LAST(k, 1) == m && REPLICATED(k, 1, m))) ->
    assert(LAST(k, s) == m);
#else
    WAITS(k, s, m) && LAST(k, s) == m && REPLICATED(k, s, m) ->
#endif
    got[s] = m; said_done = said_done | BIT(s, m)
  }
}
inline refuse_old(k, s, m) {
  d_step {
    WAITS(k, s, m) && LAST(k, s) > m ->
#ifndef LOST_IS_FINE
    assert(false); /* the client may ask for this outcome, and nobody has it */
#endif
    got[s] = m
  }
}
inline refuse_unknown(k, s, m) { d_step { WAITS(k, s, m) && !known[k] -> got[s] = m } }

#ifdef ASK
inline end_connection(k, s) { /* of the newest request, as the server sees it */
  d_step {
    acts[k] && at_[s] == k + 1 && sent[s] > got[s] && !(under_way[k] & BIT(s, sent[s])) &&
      !(over & BIT(s, sent[s])) ->
    over = over | BIT(s, sent[s])
  }
}
#ifdef ASKED_BEFORE_END
#define OVER(k, s) true
#else
#define OVER(k, s) (at_[s] != (k) + 1 || (over & BIT(s, sent[s])))
#endif
#ifdef ASK_NO_LEASE
#define BELIEVED(k) true
#else
#define BELIEVED(k) (k == 2 || (!acts[(k + 1) % 3] && (k == 0 || !in_sync_2[1] || heard)))
#endif
#if defined(FLOOR) && !defined(FLOOR_NOT_COMPARED)
#define WOULD_BE_HERE(k, s) (k != 2 || !joined || young[s])
#else
#define WOULD_BE_HERE(k, s) true
#endif
inline say_never(k, s) {
  d_step {
    acts[k] && known[k] && sent[s] > got[s] && OVER(k, s) && BELIEVED(k) && LAST(k, s) < sent[s] &&
      WOULD_BE_HERE(k, s) ->
    said_never = said_never | BIT(s, sent[s]); got[s] = sent[s];
    is_sound(0); is_sound(1); is_sound(2)
  }
}
#endif

inline forget(k) {
  d_step {
    !forgot && acts[k] -> forgot = true; LAST(k, 0) = 0; LAST(k, 1) = 0;
#ifndef FORGOTTEN_IS_NEW
    known[k] = false;
#endif
    skip
  }
}

/* ---- replication ---- */

#define OBEYS(b, k) (acts[k] && !acts[b] && (b == 1 || k == 1 || !heard))
inline stream(k, b, s) {
  d_step {
    OBEYS(b, k) && (b == 1 || in_sync_2[k]) && (k == 0 || heard) &&
      (done[k] & ALL_OF(s)) != (done[b] & ALL_OF(s)) ->
    done[b] = (done[b] & (63 - ALL_OF(s))) | (done[k] & ALL_OF(s));
    took[k + b - 1] = took[k + b - 1] | (done[k] & ALL_OF(s));
#if !defined(TABLE_IN_MEMORY) && !defined(RECORDED_APART)
    if :: known[b] && known[k] -> LAST(b, s) = LAST(k, s) :: else -> known[b] = false fi;
#endif
    skip
  }
}
#ifdef RECORDED_APART
inline stream_outcome(k, b, s) { /* the log is in order: after its write */
  d_step {
    OBEYS(b, k) && (k == 0 || heard) && (done[k] & ALL_OF(s)) == (done[b] & ALL_OF(s)) ->
    LAST(b, s) = LAST(k, s)
  }
}
#endif
inline copy() { /* a joiner, or a replica that hears of server 1: it has server 1's log now */
  done[2] = done[1];
#if !defined(TABLE_IN_MEMORY)
  last[4] = last[2]; last[5] = last[3]; known[2] = known[1];
#endif
  took[2] = done[1]; heard = true
}
inline hear() { d_step { acts[1] && !acts[2] && in_sync_2[1] && !heard -> copy() } }
inline join() {
  d_step {
    acts[1] && !acts[2] && !in_sync_2[1] -> copy(); in_sync_2[1] = true;
#if defined(JOINER_WITHOUT_TABLE) || defined(FLOOR)
    last[4] = 0; last[5] = 0;
#endif
#ifdef FLOOR
    joined = true;
#endif
    skip
  }
}
inline take_over_1() {
  d_step {
    !acts[1] ->
    acts[1] = true; in_sync_2[1] = in_sync_2[0]; is_sound(1)
  }
}
inline take_over_2() {
  d_step {
    acts[1] && !acts[2] && in_sync_2[1] ->
    acts[2] = true; is_sound(2)
  }
}

#define BY_SERVER(f, s, m) :: f(0, s, m) :: f(1, s, m) :: f(2, s, m)
#if NUMBERS == 3
#define BY_NUMBER(f, s) BY_SERVER(f, s, 1) BY_SERVER(f, s, 2) BY_SERVER(f, s, 3)
#else
#define BY_NUMBER(f, s) BY_SERVER(f, s, 1) BY_SERVER(f, s, 2)
#endif
#if SLOTS == 2
#define EACH(f) BY_NUMBER(f, 0) BY_NUMBER(f, 1)
#define BY_SLOT(f) :: f(0, 0) :: f(1, 0) :: f(2, 0) :: f(0, 1) :: f(1, 1) :: f(2, 1)
#define STREAMS(f) \
  :: f(0, 1, 0) :: f(0, 2, 0) :: f(1, 2, 0) :: f(0, 1, 1) :: f(0, 2, 1) :: f(1, 2, 1)
#else
#define EACH(f) BY_NUMBER(f, 0)
#define BY_SLOT(f) :: f(0, 0) :: f(1, 0) :: f(2, 0)
#define STREAMS(f) :: f(0, 1, 0) :: f(0, 2, 0) :: f(1, 2, 0)
#endif
#define SENDS(s) :: send(s, 0) :: send(s, 1) :: send(s, 2)

proctype world() {
end:
  do
  SENDS(0)
#if SLOTS == 2
  SENDS(1)
#endif
  EACH(take_up) EACH(execute) EACH(answer) EACH(refuse_old) EACH(refuse_unknown)
#ifdef RECORDED_APART
  EACH(record) STREAMS(stream_outcome)
#endif
#ifdef ASK
  BY_SLOT(end_connection) BY_SLOT(say_never)
#endif
  STREAMS(stream)
  :: hear() :: join() :: take_over_1() :: take_over_2()
  :: forget(0) :: forget(1)
  od
}

init {
  if
  :: in_sync_2[0] = true
  :: skip
  fi;
  acts[0] = true;
  run world()
}
