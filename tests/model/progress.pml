/* A replicated group goes on: every write ends, whatever single thing breaks for good.
 *
 * Each step of this model is taken once at most, or brings something forward, so every run ends. A
 * run ends when no step is possible any more (`timeout`): then the primary in etcd must be alive and
 * have answered all its writes, clients included that waited to be admitted. A step that is possible
 * is taken at some time: timers run out, and what is sent over a link that is not cut arrives.
 *
 * Modelled: three replicas, their queues, marks, sets; what stays broken (FAULTS of these): a
 * process that has ended, a link between two replicas, a link to etcd, a replica that answers while
 * its disk takes nothing, a transaction whose request or outcome is lost. A backup tries to take over when it
 * hears no primary. After a take-over clients send again what was not answered.
 * An entry is in a queue from when it is written or taken until the mark has passed it, for only
 * then may the engine have it. A primary sends what a backup lacks as one batch.
 *
 * Left out: whether answers are right (log.pml, lease.pml, takeover.pml); restarts; three faults, of
 * which some stop a group of three for good: then it waits for a person.
 *
 * accept: one fault
 * accept-long FAULTS=2: two faults
 * accept-long FAULTS=2 NO_STUCK: two faults, none of a disk
 * reject WATCH_HEARTBEATS: a backup is removed if it does not answer, but not if its position stands still
 * reject NOT_SENT_AGAIN FAULTS=2 NO_STUCK: a transaction without an outcome is waited for and not sent again
 * reject HEARTBEATS_GO_ON FAULTS=2 NO_STUCK: a primary that cannot change its set goes on sending heartbeats
 * reject IMPATIENT FAULTS=2 NO_STUCK: a backup gives no time to a primary that has just taken over
 * reject MARK_NEEDS_ROOM: a mark is taken with an entry, and so needs room in the queue
 * reject SMALLER_QUEUE: a backup's queue is smaller than the primary's
 * reject STUCK_PRIMARY_STAYS: a primary whose disk takes nothing goes on sending heartbeats
 */
#ifndef FAULTS
#define FAULTS 1
#endif
#define WRITES 3
#define QUEUE 2 /* entries */
#ifdef SMALLER_QUEUE
#define BACKUP_QUEUE 1
#else
#define BACKUP_QUEUE QUEUE
#endif
#define B(r) (1 << (r))

byte dead, stuck, no_etcd; /* bits: replicas */
byte cut;                  /* bit a+b-1: the link between a and b */
byte faults;

byte length[3], mark[3], engine[3];
bool acting[3], ended[3], silent[3];
byte obeys[3] = 0; /* the primary of whose term a replica is */
byte view[3] = 7;
byte inherited[3];
byte answer[9]; /* [3p+b]: 1 + position */

byte c_primary, c_set = 7, c_term = 1;
byte seen[3] = 1;  /* the revision that a replica has read */
byte revision = 1;
bool open[3];      /* a transaction has no outcome yet */
byte pending[3];   /* it is on its way: 8 + the new set, or 1: take-over */
byte wanted[3];

#define LINK(a, b) (!(cut & B((a) + (b) - 1)))
#define ALIVE(r) (!(dead & B(r)) && !ended[r])
#define ETCD(r) (ALIVE(r) && !(no_etcd & B(r)))

/* ---- what breaks ---- */

inline end_(r) {
  d_step {
    faults < FAULTS && ALIVE(r) ->
    faults++; dead = dead | B(r); acting[r] = false
  }
}
inline cut_link(a, b) {
  d_step {
    faults < FAULTS && LINK(a, b) ->
    faults++; cut = cut | B(a + b - 1)
  }
}
inline cut_etcd(r) { d_step { faults < FAULTS && ETCD(r) -> faults++; no_etcd = no_etcd | B(r) } }
inline stop_taking(r) {
  d_step {
    faults < FAULTS && ALIVE(r) && !(stuck & B(r)) ->
    faults++; stuck = stuck | B(r)
  }
}
inline lose(r) { d_step { faults < FAULTS && pending[r] -> faults++; pending[r] = 0 } }

/* ---- the log ---- */

#define ADMITTED(p) (engine[p] >= inherited[p])
#define SERVES(p) (acting[p] && ALIVE(p) && ADMITTED(p))
inline write_(p) {
  d_step {
    SERVES(p) && !(stuck & B(p)) && length[p] < WRITES && length[p] - mark[p] < QUEUE ->
    length[p]++
  }
}
#define HEARS(b, p) \
  (b != p && acting[p] && ALIVE(p) && ALIVE(b) && LINK(p, b) && !silent[p] && !acting[b])
inline obey(p, b) { /* the first message of a term */
  d_step {
    HEARS(b, p) && answer[3*p+b] == 0 && !(stuck & B(b)) &&
      (obeys[b] == p || c_primary == p) ->
    obeys[b] = p;
    if :: length[b] > length[p] -> length[b] = length[p] :: else fi;
    answer[3*p+b] = 1 + length[b]
  }
}
inline take(p, b) {
  d_step {
    HEARS(b, p) && obeys[b] == p && answer[3*p+b] && !(stuck & B(b)) && length[b] < length[p] &&
      length[p] - mark[b] <= BACKUP_QUEUE ->
    length[b] = length[p]; answer[3*p+b] = 1 + length[b]
  }
}
#ifdef MARK_NEEDS_ROOM
#define ROOM(b) (length[b] - mark[b] < BACKUP_QUEUE)
#else
#define ROOM(b) true
#endif
inline tell_mark(p, b) {
  d_step { HEARS(b, p) && obeys[b] == p && answer[3*p+b] && mark[b] < mark[p] &&
    mark[b] < length[b] && ROOM(b) ->
    mark[b] = (mark[p] < length[b] -> mark[p] : length[b])
  }
}
#define HAS_NEXT(p, b) (!(view[p] & B(b)) || b == p || answer[3*p+b] > mark[p] + 1)
inline raise_mark(p) {
  d_step {
    acting[p] && ALIVE(p) && mark[p] < length[p] && HAS_NEXT(p, 0) && HAS_NEXT(p, 1) &&
      HAS_NEXT(p, 2) ->
    mark[p]++
  }
}
inline apply(p) {
  d_step {
    acting[p] && ALIVE(p) && engine[p] < mark[p] && !(stuck & B(p)) ->
    engine[p]++
  }
}

/* ---- the configuration ---- */

#ifdef WATCH_HEARTBEATS
#define STANDS_STILL(p, b) false
#else
#define STANDS_STILL(p, b) ((stuck & B(b)) && answer[3*p+b] <= length[p])
#endif
inline remove_(p, b) {
  d_step {
    acting[p] && ALIVE(p) && !open[p] && b != p && (view[p] & B(b)) && seen[p] == revision &&
      (!ALIVE(b) || !LINK(p, b) || STANDS_STILL(p, b)) ->
    open[p] = true; wanted[p] = 8 + (view[p] & (7 - B(b)));
    if :: ETCD(p) -> pending[p] = wanted[p] :: else fi
  }
}
/* The failure time has passed since it heard the primary in etcd, and since it read of it. */
#ifdef IMPATIENT
#define HEARS_NOBODY(b) (!HEARS(b, obeys[b]))
#else
#define HEARS_NOBODY(b) \
  (!(ALIVE(c_primary) && LINK(b, c_primary) && !silent[c_primary] && \
   (acting[c_primary] || ETCD(c_primary))))
#endif
inline candidate(b) {
  d_step {
    ETCD(b) && !acting[b] && !open[b] && (c_set & B(b)) && c_primary != b && c_term < 4 &&
      HEARS_NOBODY(b) ->
    open[b] = true; wanted[b] = 1; pending[b] = 1; seen[b] = revision
  }
}
inline commit(r) {
  d_step {
    pending[r] -> revision++;
    if
    :: pending[r] == 1 ->
       c_term++;
       c_set = c_set & (7 - B(c_primary));
       c_primary = r
    :: else -> c_set = pending[r] - 8
    fi;
    pending[0] = 0; pending[1] = 0; pending[2] = 0
  }
}
inline send_again(r) { /* with the same comparison: it or the first one succeeds, or neither */
  d_step {
    ETCD(r) && open[r] && pending[r] == 0 && seen[r] == revision -> pending[r] = wanted[r]
  }
}
inline learn(r) { /* reads etcd: after an outcome, or since it was told of a change */
  d_step {
    ETCD(r) && seen[r] < revision ->
    seen[r] = revision; open[r] = false; wanted[r] = 0;
    if
    :: acting[r] && c_primary != r -> acting[r] = false; ended[r] = true
    :: acting[r] && c_primary == r -> view[r] = c_set
    :: !acting[r] && c_primary == r ->
       acting[r] = true; obeys[r] = r; view[r] = c_set; inherited[r] = length[r]; engine[r] = 0;
       answer[3*r] = 0; answer[3*r+1] = 0; answer[3*r+2] = 0
    :: else
    fi
  }
}
/* No more heartbeats: somebody else takes over. */
#ifdef HEARTBEATS_GO_ON
#define CANNOT_CHANGE_SET(r) false
#else
#define CANNOT_CHANGE_SET(r) (open[r] && !ETCD(r))
#endif
#ifdef STUCK_PRIMARY_STAYS
#define DISK_TAKES_NOTHING(r) false
#else
#define DISK_TAKES_NOTHING(r) (stuck & B(r))
#endif
inline fall_silent(r) {
  d_step {
    acting[r] && ALIVE(r) && !silent[r] && view[r] != B(r) &&
      (CANNOT_CHANGE_SET(r) || DISK_TAKES_NOTHING(r)) ->
    silent[r] = true
  }
}

#define EACH(f) :: f(0) :: f(1) :: f(2)
#define PAIRS(f) :: f(0, 1) :: f(0, 2) :: f(1, 0) :: f(1, 2) :: f(2, 0) :: f(2, 1)
proctype world() {
  do
  EACH(end_) EACH(cut_etcd) EACH(lose) :: cut_link(0, 1) :: cut_link(0, 2) :: cut_link(1, 2)
#ifndef NO_STUCK
  EACH(stop_taking)
#endif
  EACH(write_) PAIRS(obey) PAIRS(take) PAIRS(tell_mark) EACH(raise_mark) EACH(apply)
  PAIRS(remove_) EACH(candidate) EACH(commit) EACH(learn)
#ifndef NOT_SENT_AGAIN
  EACH(send_again)
#endif
  EACH(fall_silent)
  :: timeout ->
     assert(ALIVE(c_primary) && SERVES(c_primary) && mark[c_primary] == WRITES);
     break
  od
}

init {
  acting[0] = true;
  run world()
}
